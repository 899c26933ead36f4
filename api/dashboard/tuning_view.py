"""What the page of a tuning shows: each trial measured beside predicted, and the certificate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from api.dashboard import quantities
from api.dashboard.charts import Figure, interval_marks, panel, time_scale
from api.dashboard.run_view import badge_of
from api.tuning_schemas import FleetTuning, TuningState
from planner.schema.plan import Interval
from planner.schema.tuning import MeasuredCertificate, TuningTrial
from planner.tuning.words import certificate_lines

_LINE_PIXELS = 2
_HEIGHT = 340
_HEADROOM = 1.15
_OUTCOMES = {
    "measured": ("measured", "good"),
    "out_of_memory": ("out of memory", "warn"),
    "failed": ("failed", "bad"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRow:
    """A trial, arranged for the table: `reason` says why nothing was measured.

    `optimistic_seconds` is what, before it, any plan had a chance of at most 10% to be faster than.
    """

    number: int
    description: str
    outcome: str
    badge: str
    predicted: Interval
    fits_probability: float
    optimistic_seconds: float | None
    measured_seconds: float | None
    predicted_peak_bytes: float | None
    peak_bytes: float | None
    run_id: str | None
    reason: str | None
    is_best: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningView:
    """A tuning, arranged for its page: no plan is likely to be more than `faster_ratio` faster."""

    tuning: FleetTuning
    badge: str
    is_over: bool
    phase: str
    best: TrialRow | None
    faster_ratio: float | None
    trials: tuple[TrialRow, ...]
    claims: tuple[str, ...]
    figure: Figure | None
    is_bounded: bool


def tuning_view(tuning: FleetTuning) -> TuningView:
    """Return the tuning with its trials in order, the one under way last."""
    rows = tuple(_rows(tuning))
    certificate = tuning.tuning.certificate
    claims = (
        () if certificate is None else tuple(certificate_lines(certificate, tuning.tuning.budget))
    )
    return TuningView(
        tuning=tuning,
        badge=badge_of(tuning.state.value),
        is_over=tuning.state is not TuningState.RUNNING,
        phase=_phase(tuning),
        best=next((row for row in rows if row.is_best), None),
        faster_ratio=_faster_ratio(tuning, rows),
        trials=rows,
        claims=tuple(f"{claim[:1].upper()}{claim[1:]}." for claim in claims),
        figure=_figure(rows, certificate) if rows else None,
        is_bounded=any(_bounds(rows, certificate)),
    )


def _phase(tuning: FleetTuning) -> str:
    """Return what is being done now."""
    if tuning.state is not TuningState.RUNNING:
        return ""
    if tuning.under_way is None:
        return "Looking for what to try next."
    return f"Trial {tuning.under_way.number} is under way: {tuning.under_way.description}."


def _faster_ratio(tuning: FleetTuning, rows: Sequence[TrialRow]) -> float | None:
    """Return what the certificate says, and before there is one what was proven so far."""
    if tuning.tuning.certificate is not None:
        return tuning.tuning.certificate.faster_ratio
    best = tuning.tuning.best_seconds
    if best is None or tuning.under_way is None or not rows[-1].optimistic_seconds:
        return None
    return max(1.0 - rows[-1].optimistic_seconds / best, 0.0)


def _rows(tuning: FleetTuning) -> Iterable[TrialRow]:
    best = tuning.tuning.best_index
    for index, trial in enumerate(tuning.tuning.trials):
        yield _row(trial, number=index + 1, is_best=index == best)
    running = tuning.under_way
    if running is not None:
        yield TrialRow(
            number=running.number,
            description=running.description,
            outcome="running",
            badge="",
            predicted=running.predicted,
            fits_probability=running.fits_probability,
            optimistic_seconds=running.optimistic_seconds,
            measured_seconds=None,
            predicted_peak_bytes=running.predicted_peak_bytes,
            peak_bytes=None,
            run_id=running.run_id,
            reason=None,
            is_best=False,
        )


def _row(trial: TuningTrial, *, number: int, is_best: bool) -> TrialRow:
    outcome, badge = _OUTCOMES[trial.outcome]
    return TrialRow(
        number=number,
        description=trial.description,
        outcome=outcome,
        badge=badge,
        predicted=trial.predicted,
        fits_probability=trial.fits_probability,
        optimistic_seconds=trial.optimistic_seconds,
        measured_seconds=trial.typical_seconds if trial.step_seconds else None,
        predicted_peak_bytes=trial.predicted_peak_bytes,
        peak_bytes=trial.peak_memory_bytes,
        run_id=trial.run_id,
        reason=trial.reason,
        is_best=is_best,
    )


def _figure(rows: Sequence[TrialRow], certificate: MeasuredCertificate | None) -> Figure:
    """Return each trial's predicted interval and measured step, the best so far, and the bound."""
    measured = [row for row in rows if row.measured_seconds is not None]
    bounds = list(_bounds(rows, certificate))
    tops = [row.predicted.p90 for row in rows]
    tops += [row.measured_seconds for row in measured if row.measured_seconds is not None]
    scale, unit = time_scale(max(tops))
    layout = panel(x_title="Trial", y_title=f"Time of a step ({unit})", height=_HEIGHT)
    layout["xaxis"] |= {"range": [0.5, len(rows) + 0.5], "dtick": max(1, len(rows) // 12)}
    lows = [row.predicted.p10 for row in rows] + [seconds for _, seconds in bounds]
    lows += [row.measured_seconds for row in measured if row.measured_seconds is not None]
    layout["yaxis"] |= {
        "type": "linear",
        "autorange": False,
        "range": [min(lows) / scale / _HEADROOM, max(tops) * _HEADROOM / scale],
    }
    data = [_predicted(rows, scale=scale)]
    if measured:
        data += [_best_so_far(measured, len(rows), scale=scale), _measured(measured, scale=scale)]
    data += [trace for trace in (_without_step(rows, scale=scale),) if trace["x"]]
    if bounds:
        data.append(_bound_so_far(bounds, len(rows), scale=scale))
    return {"data": data, "layout": layout}


def _bounds(
    rows: Sequence[TrialRow], certificate: MeasuredCertificate | None
) -> Iterable[tuple[int, float]]:
    """Yield after how many trials what was proven, where it was anything."""
    for row in rows:
        if row.optimistic_seconds:
            yield row.number - 1, row.optimistic_seconds
    if certificate is not None and certificate.optimistic_seconds:
        yield len(rows), certificate.optimistic_seconds


def _predicted(rows: Sequence[TrialRow], *, scale: float) -> dict[str, Any]:
    return interval_marks(
        [row.number for row in rows],
        [row.predicted.p50 / scale for row in rows],
        [(row.predicted.p10 / scale, row.predicted.p90 / scale) for row in rows],
        words=[
            f"trial {row.number}: predicted {quantities.seconds(row.predicted.p50)} "
            f"({quantities.seconds(row.predicted.p10)} to {quantities.seconds(row.predicted.p90)})"
            f"<br>{row.description}"
            for row in rows
        ],
    )


def _measured(rows: Sequence[TrialRow], *, scale: float) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "measured",
        "x": [row.number for row in rows],
        "y": [(row.measured_seconds or 0.0) / scale for row in rows],
        "marker": {"size": 10, "color": "var(--accent)"},
        "hovertext": [
            f"trial {row.number}: {quantities.exact_seconds(row.measured_seconds)} measured"
            f"<br>{row.description}"
            for row in rows
        ],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }


def _best_so_far(rows: Sequence[TrialRow], count: int, *, scale: float) -> dict[str, Any]:
    best = list(accumulate((row.measured_seconds or 0.0 for row in rows), min))
    places = [row.number for row in rows]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "best so far",
        "x": [*places, count + 0.5],
        "y": [seconds / scale for seconds in (*best, best[-1])],
        "line": {"shape": "hv", "width": _LINE_PIXELS, "color": "var(--accent)"},
        "hoverinfo": "skip",
    }


def _without_step(rows: Sequence[TrialRow], *, scale: float) -> dict[str, Any]:
    """Return a cross at the predicted step of each trial that measured none."""
    lost = [row for row in rows if row.measured_seconds is None and row.reason is not None]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "nothing measured",
        "x": [row.number for row in lost],
        "y": [row.predicted.p50 / scale for row in lost],
        "marker": {
            "size": 12,
            "symbol": "x-thin-open",
            "color": "var(--bad)",
            "line": {"width": 3},
        },
        "hovertext": [f"trial {row.number}: {row.outcome}<br>{row.description}" for row in lost],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }


def _bound_so_far(
    bounds: Sequence[tuple[int, float]], count: int, *, scale: float
) -> dict[str, Any]:
    """Return what was proven after each trial; the certificate is the way from it to the best."""
    places, seconds = [max(place, 0.5) for place, _ in bounds], [bound for _, bound in bounds]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "bound so far",
        "x": [*places, count + 0.5],
        "y": [bound / scale for bound in (*seconds, seconds[-1])],
        "line": {
            "shape": "hv",
            "width": _LINE_PIXELS,
            "dash": "dash",
            "color": "var(--capacity)",
        },
        "hovertext": [f"bound: {quantities.exact_seconds(bound)}" for bound in seconds],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }
