"""Between rows of tunings and what is shown of them."""

from __future__ import annotations

import json
from typing import Any

from api.services.records import column_text
from api.tables import TuningRow
from api.tuning_schemas import FleetTuning, TrialUnderWay, TuningState, TuningSummary
from planner.schema.service import Problem
from planner.schema.tuning import Tuning

_SUMMARY = tuple(name for name in TuningSummary.model_fields if name not in ("model", "cluster"))


def keep(row: TuningRow, tuning: Tuning) -> None:
    """Have the row hold the tuning."""
    certificate = tuning.certificate
    row.document = tuning.model_dump_json()
    row.model_name = column_text(tuning.model.resolved.name)
    row.cluster_name = column_text(tuning.cluster.resolved.name)
    row.run_budget, row.step_budget = tuning.budget.runs, tuning.budget.steps
    row.trial_count, row.best_seconds = len(tuning.trials), tuning.best_seconds
    row.faster_ratio = None if certificate is None else certificate.faster_ratio


def stored_tuning(row: TuningRow) -> Tuning:
    """Return the tuning that the row holds."""
    return Tuning.model_validate_json(row.document)


def under_way(row: TuningRow) -> TrialUnderWay | None:
    """Return the trial that runs now."""
    return None if row.under_way is None else TrialUnderWay.model_validate_json(row.under_way)


def summary_of(row: TuningRow) -> TuningSummary:
    """Return the line of the list that stands for the row."""
    return TuningSummary(**_summary(row))


def tuning_of(row: TuningRow) -> FleetTuning:
    """Return all of a tuning."""
    return FleetTuning(
        **_summary(row),
        arguments=json.loads(row.arguments),
        under_way=under_way(row),
        problem=None if row.problem is None else Problem.model_validate_json(row.problem),
        tuning=stored_tuning(row),
    )


def _summary(row: TuningRow) -> dict[str, Any]:
    fields = {name: getattr(row, name) for name in _SUMMARY}
    return {
        **fields,
        "state": TuningState(row.state),
        "model": row.model_name,
        "cluster": row.cluster_name,
    }
