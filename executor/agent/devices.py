"""Devices: what this node has, as the driver tells it, without torch."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections import Counter

from executor.agent.configuration import AgentConfiguration, CommandTemplate, Devices
from executor.agent.errors import AgentError
from executor.agent.gpus import Hardware, NoGpusError, gpus
from planner.schema.agent import (
    AgentDevice,
    AgentReport,
    AgentTopology,
    AgentVersions,
    CommandArgument,
)

_CPU_PROFILE = "cpu-gloo"


def node_report(configuration: AgentConfiguration) -> AgentReport:
    """Return what this node offers, as it is now.

    Raises:
        AgentError: if it has not the devices that its configuration names.
    """
    return introduction(configuration)[0]


def introduction(configuration: AgentConfiguration) -> tuple[AgentReport, str]:
    """Return what this node offers, as a report and in words.

    Raises:
        AgentError: if it has not the devices that its configuration names.
    """
    found = _found(configuration.devices)
    report = _report(configuration, found)
    return report, offer(report, no_gpu=found.no_gpu)


def _report(configuration: AgentConfiguration, found: Hardware) -> AgentReport:
    return AgentReport(
        name=configuration.name,
        address=configuration.address,
        devices=found.devices,
        host_memory_bytes=host_memory_bytes(),
        topology=AgentTopology(location=configuration.location, links=found.links),
        versions=AgentVersions(
            agent=_version("meshwright") or "unknown",
            python=platform.python_version(),
            torch=_version("torch"),
            cuda=found.versions.get("cuda"),
            nccl=_version("nvidia-nccl-cu13") or _version("nvidia-nccl-cu12"),
            driver=found.versions.get("driver"),
        ),
        commands=tuple(sorted(configuration.commands)),
        arguments={
            name: _accepted(template) for name, template in sorted(configuration.commands.items())
        },
        launcher="local" if configuration.slurm is None else "slurm",
        node_count=1 if configuration.slurm is None else configuration.slurm.nodes,
    )


def _accepted(template: CommandTemplate) -> dict[str, CommandArgument]:
    return {
        name: CommandArgument(pattern=rule.pattern, required=rule.default is None)
        for name, rule in sorted(template.arguments.items())
    }


def offer(report: AgentReport, *, no_gpu: str) -> str:
    """Return in words what the report offers, and why there is no GPU where one was looked for."""
    names = Counter(device.name for device in report.devices)
    said = ", ".join(f"{count} x {name}" for name, count in names.items())
    return f"offers {said}" + (f" (CPU ranks; no GPU: {no_gpu})" if no_gpu else "")


def _found(wanted: Devices) -> Hardware:
    """Return devices, their links and the driver's versions.

    Raises:
        AgentError: if there are fewer GPUs than wanted.
    """
    if wanted.kind == "cpu":
        return _processors(wanted)
    try:
        found = gpus(count=wanted.count, profile=wanted.profile)
    except NoGpusError as error:
        if wanted.kind == "cuda":
            raise _too_few(wanted, str(error)) from None
        return _processors(wanted, no_gpu=str(error))
    if len(found.devices) < (wanted.count or 1):
        raise _too_few(wanted, f"NVML shows {len(found.devices)}")
    return found


def _too_few(wanted: Devices, reason: str) -> AgentError:
    return AgentError(
        f"this node has fewer GPUs than this asks for ({reason})",
        field="devices.count",
        value=wanted.count or 1,
        remedy="repair the driver (does nvidia-smi list them?), ask for fewer, or set devices.kind",
    )


def _processors(wanted: Devices, *, no_gpu: str = "") -> Hardware:
    """Return this node's processor as so many ranks."""
    count = wanted.count or os.cpu_count() or 1
    name, share = _processor_name(), host_memory_bytes() // count
    devices = tuple(
        AgentDevice(
            index=index, name=name, profile=wanted.profile or _CPU_PROFILE, memory_bytes=share
        )
        for index in range(count)
    )
    return Hardware(devices=devices, links=(), versions={}, no_gpu=no_gpu)


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
