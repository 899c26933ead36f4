"""Machine: the cluster of a measured run, and the network between its nodes where it is stated."""

from __future__ import annotations

import re
from dataclasses import replace

from pydantic import ValidationError

from planner.errors import InputError
from planner.hardware import ClusterHardware, cluster_hardware, device_names
from planner.importers.cluster.known_devices import known_device
from planner.schema.cluster import Cluster, NodeGroup
from planner.schema.complaints import complaint_words
from planner.schema.measured_run import MeasuredRun
from planner.units import GIB
from planner.validation.network import (
    ACHIEVED_RATIO,
    network_bytes_per_second,
    port_bytes_per_second,
)
from planner.validation.reasons import Assumption, Unpriceable, Unpriced

# What names that fit several profiles mean where a row states no memory.
_USUAL = {
    "a100": "a100-sxm4-80gb",
    "a100-sxm": "a100-sxm4-80gb",
    "a100-pcie": "a100-pcie-80gb",
    "v100": "v100-sxm2-32gb",
    "v100-sxm": "v100-sxm2-32gb",
    "v100-pcie": "v100-pcie-32gb",
}
_SMALLER = {("a100-sxm4-80gb", 40): "a100-sxm4-40gb"}

# Words of a GPU's printed name that tell nothing apart, and those that state its memory. Names of
# whole racks and nodes stand for the GPUs in them.
_BRANDS = re.compile(r"\b(nvidia|amd|instinct|tesla|geforce|quadro|hgx|dgx)\b|\bgpu\b")
_MEMORY_SIZE = re.compile(r"(\d{2,3})(?:gb|gib)?")
_MEMORY_WORD = re.compile(r"\d{2,3}(?:gb|gib)?|hbm\de?|nvl72")

_USUAL_NODE = 8
_MEBIBYTES_FROM = 1000.0  # no device has as many gigabytes: such a figure is the driver's, in MiB
_USABLE_RATIO = 0.985  # of the nominal size; an A100 and an H100 of 80 GB leave 79.1 GiB
_ALIKE_RATIO = 0.1  # a size that differs by less is another way to print the profile's own

# Through sockets Horovod used 32 of 100 Gb/s, and most of 10. Source: Zhang et al. 2020,
# arXiv:2006.10103, section 3.
_SOCKET_RATIO = 0.4


def cluster_of(run: MeasuredRun) -> Cluster:
    """Return the cluster of `run`: whole nodes of one kind.

    Raises:
        Unpriced: if the GPU has no profile, or the number of GPUs is unknown or no whole nodes.
    """
    device, memory_bytes = _device(run)
    if run.num_gpus is None:
        raise Unpriced(Unpriceable.DEVICE_COUNT, "num_gpus")
    node = min(run.gpus_per_node or _usual_node(run.num_gpus), run.num_gpus)
    if run.num_gpus % node:
        raise Unpriced(Unpriceable.DEVICE_COUNT, f"{run.num_gpus} GPUs in nodes of {node}")
    try:
        group = NodeGroup(
            name=device,
            device=device,
            node_count=run.num_gpus // node,
            devices_per_node=node,
            memory_bytes=memory_bytes,
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise Unpriced(
            Unpriceable.LIMITS, f"{first['loc'][-1]}: {complaint_words(first)[0]}"
        ) from None
    return Cluster(name=f"{run.num_gpus}x{device}", node_groups=(group,))


def _usual_node(device_count: int) -> int:
    """Return the devices of a node that does not state them: 8, or 4 or 2 where these divide."""
    if device_count < _USUAL_NODE:
        return device_count
    return next(size for size in (_USUAL_NODE, 4, 2, 1) if device_count % size == 0)


def hardware_of(
    run: MeasuredRun, cluster: Cluster, assumptions: list[Assumption]
) -> tuple[ClusterHardware, ...]:
    """Return the cluster in SI, with the outermost level as fast as the row's network.

    Where the row names the rate of a port and not how many a node has, or no more than a kind of
    network, it may have the profile's, or a single port.

    Raises:
        Unpriced: if the nodes do not go with the profile.
    """
    try:
        hardware = cluster_hardware(cluster)
    except InputError as error:
        raise Unpriced(Unpriceable.DEVICE, str(error)) from None
    (kind,) = hardware.kinds
    words = run.interconnect or ""
    stated = network_bytes_per_second(words, kind.devices_per_node)
    if stated is not None:
        if _over_sockets(words):
            stated = stated * _SOCKET_RATIO / ACHIEVED_RATIO
        return (_with_network(hardware, stated),)
    usual = kind.levels[-1].bandwidth_bytes_per_second
    port = port_bytes_per_second(words, kind.devices_per_node, usual=usual)
    if port is None or hardware.device_count <= kind.devices_per_node:
        return (hardware,)
    assumptions.append(Assumption.PORTS_UNKNOWN)
    return hardware, _with_network(hardware, port)


def _with_network(hardware: ClusterHardware, bytes_per_second: float) -> ClusterHardware:
    (kind,) = hardware.kinds
    outer = replace(kind.levels[-1], bandwidth_bytes_per_second=bytes_per_second)
    return replace(hardware, kinds=(replace(kind, levels=(*kind.levels[:-1], outer)),))


def _over_sockets(text: str) -> bool:
    """Return whether messages between nodes pass the kernel: Ethernet without remote access."""
    words = text.lower()
    return "ethernet" in words and not any(name in words for name in ("roce", "rdma", "efa"))


def _device(run: MeasuredRun) -> tuple[str, float | None]:
    """Return the profile's name, and the memory of one GPU where it is not the profile's."""
    if run.gpu is None:
        raise Unpriced(Unpriceable.DEVICE, "gpu")
    name = run.gpu.strip().lower()
    if name == "mixed":
        raise Unpriced(Unpriceable.MIXED_DEVICES, run.gpu_raw or run.gpu)
    short, size = _short_name(name)
    stated_name = name if name in device_names() else _USUAL.get(short, short)
    try:
        device = known_device(stated_name, field="gpu").name
    except InputError:
        raise Unpriced(Unpriceable.DEVICE, run.gpu) from None
    stated = size if run.gpu_mem_gb is None else run.gpu_mem_gb
    if stated is None:
        return device, None
    gib = stated if stated < _MEBIBYTES_FROM else stated / 1024.0
    device = _SMALLER.get((device, round(gib)), device)
    nominal = _nominal_gib(device)
    if nominal is not None and abs(gib / nominal - 1.0) <= _ALIKE_RATIO:
        return device, None
    return device, _USABLE_RATIO * gib * GIB


def _short_name(name: str) -> tuple[str, float | None]:
    """Return a GPU's name without vendor, memory and generation of its socket, and the memory.

    "NVIDIA A100-SXM4-80GB" and "A100-80" are of 80 GB; "NVIDIA H100 80GB HBM3" is an h100.
    """
    spaced = re.sub(r"\b(rtx)(\d)", r"\1-\2", re.sub(r"[\s_/]+", "-", _BRANDS.sub("", name)))
    words = [word for word in spaced.split("-") if word]
    sizes = [float(found[1]) for word in words[1:] if (found := _MEMORY_SIZE.fullmatch(word))]
    kept = words[:1] + [word for word in words[1:] if not _MEMORY_WORD.fullmatch(word)]
    return "-".join(re.sub(r"^sxm\d$", "sxm", word) for word in kept), sizes[0] if sizes else None


def _nominal_gib(device: str) -> float | None:
    """Return the size that a profile's name states, `None` where it states none."""
    match = re.search(r"-(\d+)gb$", device)
    return {"gb200-nvl72": 186.0, "gb300-nvl72": 279.0}.get(device) or (
        float(match[1]) if match else None
    )
