"""Exports of stored plans, as documents."""

from __future__ import annotations

from api.plan_schemas import ExportTarget, ExportTargetList
from planner.errors import InputError
from planner.exporters.registry import TARGETS, export
from planner.schema.plan import Plan
from planner.schema.service import ExportedText, PlanExport


def export_targets(plan: Plan) -> ExportTargetList:
    """Return all targets, each with why it can run nothing like the plan, if so."""
    return ExportTargetList(
        items=tuple(
            ExportTarget(target=target, refusal=_refusal(plan, target)) for target in TARGETS
        )
    )


def export_of(plan: Plan, target: str, job_of: str | None = None) -> PlanExport:
    """Return what the plan becomes for `target`, a launcher's with the framework's job to start.

    Raises:
        InputError: if there is no such target, or it can run nothing like the plan.
    """
    exported = export(plan, target, job_of=job_of)
    return PlanExport(
        target=target,
        files=tuple(ExportedText(name=file.name, text=file.text) for file in exported.files),
        losses=exported.losses,
    )


def _refusal(plan: Plan, target: str) -> str | None:
    try:
        export(plan, target)
    except InputError as error:
        return str(error)
    return None
