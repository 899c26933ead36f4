/* A driver's library for a node that has none: four GPUs in two pairs. GPU 0 and 1 are joined by two
   NVLinks, 2 and 3 by four to a switch; what lies between the pairs is a matter of PCI. Names, types
   and error codes are those of NVML's public interface, which nvidia-ml-py calls. */
#include <stdio.h>
#include <string.h>

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3 };
enum { SWITCH = 2, GPU = 0 };
typedef struct { char legacy[16]; unsigned int numbers[5]; char bus[32]; } Pci;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { long index; } Device;
static Device devices[4] = {{0}, {1}, {2}, {3}};

int nvmlInitWithFlags(unsigned int flags) { return flags ? INVALID : SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { return code == NOT_SUPPORTED ? "Not Supported" : "?"; }
int nvmlDeviceGetCount_v2(unsigned int *count) { *count = 4; return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, Device **device) {
    if (index > 3) return INVALID;
    *device = &devices[index];
    return SUCCESS;
}

int nvmlDeviceGetName(Device *device, char *name, unsigned int length) {
    (void)device;
    strncpy(name, "NVIDIA H100 80GB HBM3", length);
    return SUCCESS;
}

int nvmlDeviceGetUUID(Device *device, char *text, unsigned int length) {
    snprintf(text, length, "GPU-%ld", device->index);
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(Device *device, Memory *memory) {
    (void)device;
    memory->total = 85520809984ULL;
    return SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(Device *device, Pci *pci) {
    snprintf(pci->bus, sizeof pci->bus, "00000000:%02lX:00.0", 0x1a + device->index);
    return SUCCESS;
}

int nvmlDeviceGetNvLinkState(Device *device, unsigned int link, unsigned int *active) {
    if (link >= 18) return INVALID;
    *active = link < (device->index < 2 ? 2 : 4);
    return SUCCESS;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(Device *device, unsigned int link, unsigned int *kind) {
    (void)link;
    *kind = device->index < 2 ? GPU : SWITCH;
    return SUCCESS;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(Device *device, unsigned int link, Pci *pci) {
    (void)link;
    if (device->index > 1) return NOT_SUPPORTED;
    return nvmlDeviceGetPciInfo_v3(&devices[1 - device->index], pci);
}

int nvmlDeviceGetTopologyCommonAncestor(Device *one, Device *other, unsigned int *level) {
    if (one->index + other->index == 3) return NOT_SUPPORTED;
    *level = 50;
    return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    strncpy(version, "580.65.06", length);
    return SUCCESS;
}

int nvmlSystemGetCudaDriverVersion(int *version) { *version = 13000; return SUCCESS; }
