"""Devices: what this node has, as the driver tells it, without torch."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from executor.agent.configuration import AgentConfiguration, Devices
from executor.agent.errors import AgentError
from planner.schema.agent import AgentDevice, AgentReport, AgentTopology, AgentVersions

_CPU_PROFILE = "cpu-gloo"
# NVML's nvmlGpuTopologyLevel_t, in the words of `nvidia-smi topo -m`.
_ANCESTORS = {0: "INT", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_NVLINK_LIMIT = 18


def node_report(configuration: AgentConfiguration) -> AgentReport:
    """Return what this node offers, as it is now.

    Raises:
        AgentError: if it has not the devices that its configuration names.
    """
    devices, links, driver = _devices(configuration.devices)
    return AgentReport(
        name=configuration.name,
        address=configuration.address,
        devices=devices,
        host_memory_bytes=host_memory_bytes(),
        topology=AgentTopology(location=configuration.location, links=links),
        versions=AgentVersions(
            agent=_version("meshwright") or "unknown",
            python=platform.python_version(),
            torch=_version("torch"),
            cuda=driver.get("cuda"),
            nccl=_version("nvidia-nccl-cu13") or _version("nvidia-nccl-cu12"),
            driver=driver.get("driver"),
        ),
        commands=tuple(sorted(configuration.commands)),
        launcher="local" if configuration.slurm is None else "slurm",
        node_count=1 if configuration.slurm is None else configuration.slurm.nodes,
    )


def _devices(
    wanted: Devices,
) -> tuple[tuple[AgentDevice, ...], tuple[tuple[str, ...], ...], dict[str, str]]:
    """Return devices, their links and the driver's versions."""
    if wanted.kind != "cpu":
        found, links, driver = _gpus(wanted)
        if found:
            return found, links, driver
    if wanted.kind == "cuda":
        raise AgentError(
            "the driver shows fewer GPUs than this asks for",
            field="devices.count",
            value=wanted.count or 1,
            remedy="mend the driver (does nvidia-smi list them?), or set devices.kind",
        )
    count = wanted.count or os.cpu_count() or 1
    name = _processor_name()
    share = host_memory_bytes() // count
    return (
        tuple(
            AgentDevice(
                index=index, name=name, profile=wanted.profile or _CPU_PROFILE, memory_bytes=share
            )
            for index in range(count)
        ),
        (),
        {},
    )


def _gpus(
    wanted: Devices,
) -> tuple[tuple[AgentDevice, ...], tuple[tuple[str, ...], ...], dict[str, str]]:
    """Return the GPUs that NVML shows, none where there is no driver."""
    try:
        import pynvml  # noqa: PLC0415 - only where it is installed
    except ImportError:
        return (), (), {}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return (), (), {}
    try:
        count = pynvml.nvmlDeviceGetCount()
        if wanted.count is not None and wanted.count > count:
            return (), (), {}
        handles = [
            pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(wanted.count or count)
        ]
        devices = tuple(
            AgentDevice(
                index=index,
                name=_plain(pynvml.nvmlDeviceGetName(handle)),
                profile=wanted.profile,
                memory_bytes=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
                uuid=_plain(pynvml.nvmlDeviceGetUUID(handle)),
            )
            for index, handle in enumerate(handles)
        )
        return devices, _links(pynvml, handles), _driver(pynvml)
    finally:
        pynvml.nvmlShutdown()


def _links(nvml: Any, handles: Sequence[Any]) -> tuple[tuple[str, ...], ...]:
    """Return how each pair connects: `X` itself, `NV18` that many links, else the way over PCI."""
    if len(handles) > 64:
        return ()
    neighbours = [_nvlink_neighbours(nvml, handle) for handle in handles]
    numbers = [_plain(nvml.nvmlDeviceGetPciInfo(handle).busId).lower() for handle in handles]
    return tuple(
        tuple(
            _link(nvml, (handles[a], handles[b]), neighbours[a], numbers[b]) if a != b else "X"
            for b in range(len(handles))
        )
        for a in range(len(handles))
    )


def _link(nvml: Any, pair: tuple[Any, Any], neighbours: Sequence[str], number: str) -> str:
    direct = sum(neighbour == number for neighbour in neighbours)
    # Where a switch stands between, all of them lead to each of the others.
    through_switch = sum(neighbour == "switch" for neighbour in neighbours)
    if direct or through_switch:
        return f"NV{direct or through_switch}"
    level = _or_none(nvml, partial(nvml.nvmlDeviceGetTopologyCommonAncestor, *pair))
    return _ANCESTORS.get(level, "unknown") if level is not None else "unknown"


def _nvlink_neighbours(nvml: Any, handle: Any) -> list[str]:
    """Return what each active NVLink leads to: a bus number, or `switch`."""
    found: list[str] = []
    for link in range(_NVLINK_LIMIT):
        if not _or_none(nvml, partial(nvml.nvmlDeviceGetNvLinkState, handle, link)):
            continue
        kind = _or_none(nvml, partial(nvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link))
        remote = _or_none(nvml, partial(nvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link))
        if kind == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            found.append("switch")
        elif remote is not None:
            found.append(_plain(remote.busId).lower())
    return found


def _driver(nvml: Any) -> dict[str, str]:
    version = _or_none(nvml, nvml.nvmlSystemGetDriverVersion)
    cuda = _or_none(nvml, nvml.nvmlSystemGetCudaDriverVersion)
    found = {} if version is None else {"driver": _plain(version)}
    return found if cuda is None else {**found, "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}"}


def _or_none(nvml: Any, ask: Callable[[], Any]) -> Any:
    """Return an answer, `None` where this device or driver does not know it."""
    try:
        return ask()
    except nvml.NVMLError:
        return None


def _plain(text: str | bytes) -> str:
    return text.decode() if isinstance(text, bytes) else text


def host_memory_bytes() -> int:
    """Return the memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _processor_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123
            names = [line.partition(":")[2].strip() for line in file if "model name" in line]
    except OSError:
        names = []
    return (names[0] if names and names[0] else platform.machine() or "cpu")[:200]


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
