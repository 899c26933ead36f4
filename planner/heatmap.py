"""Heatmap: the best step for every pair of two degrees, each solved, or why there is none."""

from __future__ import annotations

import numpy as np

from planner.errors import InputError
from planner.explain import describe_strategy
from planner.fixed_limits import DEGREES
from planner.ilp.result import NotFound
from planner.inquiry import Inquiry
from planner.refusal import missing_bytes, rules
from planner.resolution import Request
from planner.schema.job import DegreeLimit
from planner.schema.reasons import Heatmap, HeatmapCell
from planner.space.degrees import enumerate_configurations
from planner.units import format_bytes
from planner.variation import with_limits


def heatmap(
    request: Request,
    *,
    best_seconds: float,
    inquiry: Inquiry,
    row_field: str = "tensor_parallel_degree",
    column_field: str = "pipeline_parallel_degree",
) -> Heatmap:
    """Return the best step of every pair of degrees that some legal configuration has.

    Raises:
        InputError: if an axis is no degree, or both are the same.
        SolverError: if the solver fails.
        VerificationError: if a plan does not survive its own recomputation.
    """
    _check_axes(row_field, column_field)
    space = enumerate_configurations(
        request.model.resolved, request.hardware, request.job.resolved
    ).columns()
    rows = tuple(int(degree) for degree in np.unique(getattr(space, row_field)))
    columns = tuple(int(degree) for degree in np.unique(getattr(space, column_field)))
    cells: list[HeatmapCell] = []
    for row in rows:
        for column in columns:
            inquiry.tell("heatmap", len(cells), len(rows) * len(columns))
            fixed = {row_field: row, column_field: column}
            cells.append(_cell(request, fixed, best_seconds=best_seconds, inquiry=inquiry))
    return Heatmap(
        row_field=row_field,
        column_field=column_field,
        rows=rows,
        columns=columns,
        cells=tuple(cells),
    )


def _check_axes(row_field: str, column_field: str) -> None:
    for name in (row_field, column_field):
        if name not in DEGREES:
            raise InputError(
                "is no degree", field="axes", value=name, remedy=f"use two of {', '.join(DEGREES)}"
            )
    if row_field == column_field:
        raise InputError(
            "names one degree twice",
            field="axes",
            value=row_field,
            remedy=f"use two of {', '.join(DEGREES)}",
        )


def _cell(
    request: Request, fixed: dict[str, int], *, best_seconds: float, inquiry: Inquiry
) -> HeatmapCell:
    row, column = fixed.values()
    limits = {name: DegreeLimit(min=degree, max=degree) for name, degree in fixed.items()}
    held = with_limits(request, **limits)
    answer = inquiry.ask(held)
    if isinstance(answer, NotFound):
        return _empty_cell(answer, held, fixed)
    return HeatmapCell(
        row=row,
        column=column,
        status="solved",
        step_seconds=answer.step_seconds,
        slower_ratio=answer.step_seconds / best_seconds - 1.0,
        proven=answer.is_proven,
        description=describe_strategy(answer.strategy),
    )


def _empty_cell(answer: NotFound, held: Request, fixed: dict[str, int]) -> HeatmapCell:
    row, column = fixed.values()
    if not answer.proven:
        return HeatmapCell(
            row=row, column=column, status="out_of_time", reason="was not solved in time"
        )
    if answer.configurations_total == 0:
        return HeatmapCell(
            row=row,
            column=column,
            status="illegal",
            proven=True,
            reason=rules(answer, held, held.job.resolved.limits, fixed=fixed)[0],
        )
    missing = missing_bytes(answer)
    return HeatmapCell(
        row=row,
        column=column,
        status="does_not_fit",
        proven=True,
        missing_bytes=missing,
        reason="no plan fits"
        if missing is None
        else f"the leanest plan needs {format_bytes(missing)} more",
    )
