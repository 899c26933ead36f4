"""Registry: the targets by name, and the one function that exports to any of them."""

from __future__ import annotations

from collections.abc import Callable

from planner.errors import InputError
from planner.exporters.export import Export, ExportedFile
from planner.exporters.megatron import export_megatron
from planner.exporters.torchrun import export_torchrun
from planner.schema.plan import Plan

__all__ = ["TARGETS", "Export", "ExportedFile", "export"]

_EXPORTERS: dict[str, Callable[[Plan, str], Export]] = {
    "torchrun": export_torchrun,
    "megatron-lm": export_megatron,
}
TARGETS: tuple[str, ...] = tuple(_EXPORTERS)


def export(plan: Plan, target: str) -> Export:
    """Return the files that `plan` becomes for `target`, and what they lose of it.

    Raises:
        InputError: if there is no such target, or it can run nothing like the plan.
    """
    exporter = _EXPORTERS.get(target)
    if exporter is None:
        raise InputError(
            "is no target", field="target", value=target, remedy=f"use one of {', '.join(TARGETS)}"
        )
    return exporter(plan, target)
