"""GPUs: what NVML shows of this node's, without torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any, cast

from planner.schema.agent import AgentDevice

# NVML's nvmlGpuTopologyLevel_t, in the words of `nvidia-smi topo -m`.
_ANCESTORS = {0: "INT", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_NVLINK_LIMIT = 18


class NoGpusError(Exception):
    """NVML shows no GPU; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """Devices in the driver's order, how each pair connects, and the driver's versions.

    `no_gpu` says why they are no GPUs where some were looked for.
    """

    devices: tuple[AgentDevice, ...]
    links: tuple[tuple[str, ...], ...]
    versions: dict[str, str]
    no_gpu: str = ""


def gpus(*, count: int | None, profile: str | None) -> Hardware:
    """Return the first `count` GPUs, or all; fewer if there are not so many.

    Raises:
        NoGpusError: if there is none, or no way to ask.
    """
    nvml = _nvml()
    try:
        there = nvml.nvmlDeviceGetCount()
        if not there:
            raise NoGpusError("NVML shows none")
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(there)][:count]
        devices = tuple(
            _device(nvml, handle, index=index, profile=profile)
            for index, handle in enumerate(handles)
        )
        return Hardware(devices=devices, links=_links(nvml, handles), versions=_versions(nvml))
    except nvml.NVMLError as error:
        raise NoGpusError(f"NVML answers: {error}") from None
    finally:
        nvml.nvmlShutdown()


def _nvml() -> ModuleType:
    """Return NVML, initialised.

    Raises:
        NoGpusError: if the library or the driver is missing.
    """
    try:
        import pynvml  # noqa: PLC0415 - only where it is installed
    except ImportError:
        raise NoGpusError("nvidia-ml-py, which asks NVML, is not installed") from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise NoGpusError(f"NVML cannot be asked: {error}") from None
    return cast("ModuleType", pynvml)


def _device(nvml: Any, handle: Any, *, index: int, profile: str | None) -> AgentDevice:
    return AgentDevice(
        index=index,
        name=_plain(nvml.nvmlDeviceGetName(handle)),
        profile=profile,
        memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        uuid=_plain(nvml.nvmlDeviceGetUUID(handle)),
    )


def _links(nvml: Any, handles: Sequence[Any]) -> tuple[tuple[str, ...], ...]:
    """Return how each pair connects: `X` itself, `NV18` that many links, else the way over PCI."""
    if len(handles) > 64:
        return ()
    neighbours = [_nvlink_neighbours(nvml, handle) for handle in handles]
    numbers = [_plain(nvml.nvmlDeviceGetPciInfo(handle).busId).lower() for handle in handles]
    return tuple(
        tuple(
            _link(nvml, (handles[a], handles[b]), (neighbours[a], neighbours[b]), numbers[b])
            if a != b
            else "X"
            for b in range(len(handles))
        )
        for a in range(len(handles))
    )


def _link(
    nvml: Any, pair: tuple[Any, Any], neighbours: tuple[Sequence[str], Sequence[str]], number: str
) -> str:
    direct = neighbours[0].count(number)
    # Where a switch stands between, all links lead to each of the others at it.
    through_switch = min(each.count("switch") for each in neighbours)
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


def _versions(nvml: Any) -> dict[str, str]:
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
