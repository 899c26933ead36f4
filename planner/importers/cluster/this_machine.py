"""The machine at hand -> a cluster of one node: its GPUs by NVML, else its cores as CPU ranks.

NVML is asked through nvidia-ml-py where that is installed; nothing is measured here, which is what
`meshwright profile` is for.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from planner.errors import InputError
from planner.importers.cluster.discovered import Discovered, Node, device_called, discovered
from planner.schema.cluster import Cluster, NodeGroup

CPU_DEVICE = "cpu-gloo"
_RANK_LIMIT = 64
_NUMA = Path("/sys/devices/system/node")


def discover_here(*, device: str | None = None) -> Discovered:
    """Return this node: every GPU that NVML shows, or a CPU rank per usable core.

    Raises:
        InputError: if its GPUs are of several kinds, cut up, or of no known profile.
    """
    name = platform.node()[:100] or "here"
    nvml = _nvml()
    if nvml is not None:
        try:
            products = [_plain(nvml.nvmlDeviceGetName(handle)) for handle in _handles(nvml)]
            notes = _gpu_notes(nvml)
        finally:
            nvml.nvmlShutdown()
        if products:
            return _of_gpus(products, name=name, device=device, notes=notes)
    return _of_cores(name)


def _of_gpus(products: list[str], *, name: str, device: str | None, notes: list[str]) -> Discovered:
    if len(set(products)) > 1:
        raise InputError(
            "has GPUs of several kinds in one node, which cannot be planned for",
            field="this machine",
            value=", ".join(sorted(set(products))),
            remedy="hide those that the job does not use: CUDA_VISIBLE_DEVICES, or a cluster file",
        )
    node = Node(
        name=name,
        device=device or device_called(products[0], field="this machine"),
        device_count=len(products),
        host_memory_bytes=_memory_bytes(),
    )
    said = f"{len(products)} {products[0]} by NVML"
    return discovered([node], name=name, notes=[said, *notes])


def _of_cores(name: str) -> Discovered:
    """Return a rank per core that this process may use, each with its share of the memory."""
    cores = min(len(os.sched_getaffinity(0)), _RANK_LIMIT)
    memory = _memory_bytes()
    group = NodeGroup(
        name="here",
        device=CPU_DEVICE,
        node_count=1,
        devices_per_node=cores,
        memory_bytes=memory // cores,
        host_memory_bytes=memory,
    )
    found = (
        f"{_no_gpu()}: {cores} CPU ranks, one for each core that this process may use, with "
        f"{memory / 2**30:.1f} GiB together on {_numa_count()} NUMA nodes"
    )
    speed = (
        f"their speed is the shipped profile's ({CPU_DEVICE}), of another machine; `meshwright "
        "profile` measures this one"
    )
    return Discovered(cluster=Cluster(name=name, node_groups=(group,)), notes=(found, speed))


def _no_gpu() -> str:
    """Return why there are no GPUs: NVML shows none, or nothing is installed that asks it."""
    if find_spec("pynvml") is not None:
        return "no GPU by NVML"
    return "GPUs were not looked for, which takes `pip install 'meshwright[executor]'`"


def _nvml() -> ModuleType | None:
    """Return NVML, initialised, None where there is no library or no driver."""
    try:
        import pynvml  # noqa: PLC0415 - only where it is installed
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return cast("ModuleType", pynvml)


def _handles(nvml: ModuleType) -> Iterator[Any]:
    for index in range(nvml.nvmlDeviceGetCount()):
        yield nvml.nvmlDeviceGetHandleByIndex(index)


def _gpu_notes(nvml: ModuleType) -> list[str]:
    """Return in words how many NVLinks are up, as far as NVML says so."""
    up = 0
    for handle in _handles(nvml):
        for link in range(nvml.NVML_NVLINK_MAX_LINKS):
            try:
                up += nvml.nvmlDeviceGetNvLinkState(handle, link) == nvml.NVML_FEATURE_ENABLED
            except nvml.NVMLError:  # no such link
                break
    return [f"{up} NVLinks up" if up else "no NVLink up: a profile that assumes it does not hold"]


def _memory_bytes() -> int:
    """Return the memory that this process may use: the machine's, or its control group's limit."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
    except OSError:
        return whole
    return min(whole, int(limit)) if limit.isdigit() and int(limit) else whole


def _numa_count() -> int:
    return max(len(list(_NUMA.glob("node[0-9]*"))), 1)


def _plain(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name
