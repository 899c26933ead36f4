"""Heatmap: the best plan for every pair of two degrees, each solved, or why there is none.

Best is what the job asks for. The plan's own pair is known and not solved again; each other has a
fair share of the time that is left.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from planner.answers.chance_words import fitting_words, room_words
from planner.answers.explain import describe_strategy
from planner.answers.finalists import best_plan
from planner.answers.refusal import missing_bytes, rules
from planner.errors import InputError
from planner.ilp.problem import NotFound
from planner.requests.fixed_limits import DEGREES, degree_of
from planner.requests.inquiry import Inquiry
from planner.requests.planned import Planned
from planner.requests.resolution import Request
from planner.requests.variation import with_limits
from planner.schema.job import DegreeLimit
from planner.schema.reasons import Heatmap, HeatmapCell
from planner.space.degrees import enumerate_configurations
from planner.units import format_bytes


def heatmap(
    request: Request,
    *,
    best_seconds: float,
    inquiry: Inquiry,
    row_field: str = "tensor_parallel_degree",
    column_field: str = "pipeline_parallel_degree",
    planned: Planned | None = None,
) -> Heatmap:
    """Return the best plan of every pair of degrees that some legal configuration has.

    `planned` is the plan that others are held against, where there is one.

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
    pairs = [{row_field: row, column_field: column} for row, column in product(rows, columns)]
    own = None
    if planned is not None:
        own = {name: degree_of(planned.strategy, name) for name in (row_field, column_field)}
    others = [pair for pair in pairs if pair != own]
    found = inquiry.each(_cell, [(request, pair, planned or best_seconds) for pair in others])
    cells: list[HeatmapCell] = []
    for pair in pairs:
        inquiry.tell("heatmap", len(cells), len(pairs))
        if planned is not None and pair == own:
            cells.append(_own_cell(planned, pair))
        else:
            cells.append(next(found))
    return Heatmap(
        row_field=row_field,
        column_field=column_field,
        rows=rows,
        columns=columns,
        cells=tuple(cells),
        objective=request.job.resolved.objective,
    )


def _own_cell(planned: Planned, fixed: dict[str, int]) -> HeatmapCell:
    """Return the cell of the plan itself."""
    row, column = fixed.values()
    return HeatmapCell(
        row=row,
        column=column,
        status="solved",
        step_seconds=planned.step_seconds,
        slower_ratio=0.0,
        proven=planned.is_proven,
        description=describe_strategy(planned.strategy),
        objective_value=planned.value,
        more_ratio=0.0,
    )


def _check_axes(row_field: str, column_field: str) -> None:
    for name in (row_field, column_field):
        if name not in DEGREES:
            raise InputError(
                "is not a degree",
                field="axes",
                value=name,
                remedy=f"use two of {', '.join(DEGREES)}",
            )
    if row_field == column_field:
        raise InputError(
            "names one degree twice",
            field="axes",
            value=row_field,
            remedy=f"use two of {', '.join(DEGREES)}",
        )


def _cell(
    request: Request, fixed: dict[str, int], best: Planned | float, *, inquiry: Inquiry
) -> HeatmapCell:
    row, column = fixed.values()
    limits = {name: DegreeLimit(min=degree, max=degree) for name, degree in fixed.items()}
    held = with_limits(request, **limits)
    answer = best_plan(held, inquiry=inquiry)
    if isinstance(answer, NotFound):
        return _empty_cell(answer, held, fixed)
    step, value = (best, best) if isinstance(best, float) else (best.step_seconds, best.value)
    return HeatmapCell(
        row=row,
        column=column,
        status="solved",
        step_seconds=answer.step_seconds,
        slower_ratio=answer.step_seconds / step - 1.0,
        proven=answer.is_proven,
        description=describe_strategy(answer.strategy),
        objective_value=answer.value,
        more_ratio=answer.value / value - 1.0 if value else None,
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
    missing, limits = missing_bytes(answer), held.job.resolved.limits
    return HeatmapCell(
        row=row,
        column=column,
        status="does_not_fit",
        proven=True,
        missing_bytes=missing,
        reason=f"no plan {fitting_words(limits)}"
        if missing is None
        else f"the leanest plan needs at least {format_bytes(missing)} more than "
        f"{room_words(limits)}",
    )
