"""Row: one run's comparison as a document, for who wants to plot or look into single runs."""

from __future__ import annotations

from planner.schema.validation import Compared, RunComparison
from planner.validation.comparison import Comparison, Pair
from planner.validation.reasons import SetAside
from planner.validation.report import UnpricedRun


def run_comparison(answer: Comparison | UnpricedRun) -> RunComparison:
    """Return what became of one run; the memory is that of its fullest stage."""
    if isinstance(answer, UnpricedRun):
        run = answer.run
        return RunComparison(
            id=run.id, family=run.family_name, model=run.model, unpriced=str(answer.why)
        )
    run, prediction = answer.case.run, answer.prediction
    fullest = max(prediction.stages, key=lambda stage: stage.peak_memory_bytes)
    return RunComparison(
        id=run.id,
        family=run.family_name,
        model=run.model,
        device=answer.case.hardware.kinds[0].device,
        step_seconds=_compared(answer.step),
        interval_causes=prediction.interval_causes,
        peak_bytes=_compared(answer.memory),
        fits_probability=prediction.fits_probability,
        outcome=run.outcome,
        breakdown_seconds=prediction.breakdown_seconds,
        memory_bytes=fullest.memory_bytes,
        strategy=answer.case.strategy,
        assumptions=tuple(dict.fromkeys(answer.case.assumptions)),
    )


def _compared(pair: Pair | SetAside) -> Compared | None:
    if isinstance(pair, SetAside):
        return None
    return Compared(predicted=pair.predicted, p10=pair.p10, p90=pair.p90, measured=pair.measured)
