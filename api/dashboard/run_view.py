"""What the page of a run shows: its state, its history, and measured beside predicted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from api.dashboard import quantities
from api.dashboard.charts import Figure, panel
from planner.schema.lifecycle import FINAL_RUN_STATES, RunState
from planner.schema.run import (
    MeasuredStep,
    MeasuredSummary,
    PredictedRun,
    Run,
    RunEvent,
    RunMetrics,
)
from planner.units import GIB

_BADGES = {"succeeded": "good", "failed": "bad", "cancelled": "warn", "running": "good"}
_LINE_PIXELS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """A measured number beside the predicted one."""

    label: str
    predicted: str
    measured: str
    ratio: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A run, arranged for its page."""

    run: Run
    badge: str
    is_over: bool
    history: tuple[RunEvent, ...]
    beside: tuple[Beside, ...]
    step_figure: Figure | None
    loss_figure: Figure | None
    steps: tuple[tuple[int, int, float, float | None, float | None], ...]
    outside: str | None
    step_count: int | None
    left: str | None


def badge_of(state: str) -> str:
    """Return how a run's state is coloured."""
    return _BADGES.get(state, "")


def run_view(run: Run, history: Sequence[RunEvent], metrics: RunMetrics) -> RunView:
    """Return the run with its history, the newest entry first, and what was measured."""
    steps = slowest_ranks(metrics.items)
    return RunView(
        run=run,
        badge=badge_of(run.state.value),
        is_over=run.state in FINAL_RUN_STATES,
        history=tuple(reversed(history)),
        beside=tuple(_beside(metrics)),
        step_figure=_step_figure(steps, metrics.predicted) if steps else None,
        loss_figure=_loss_figure(steps) if any(row.loss is not None for row in steps) else None,
        steps=tuple(
            (row.attempt, row.step, row.step_seconds, row.tokens_per_second, row.loss)
            for row in steps[-50:]
        ),
        outside=_outside(metrics),
        step_count=_step_count(run),
        left=_left(run, metrics),
    )


def _outside(metrics: RunMetrics) -> str | None:
    """Return how the measured step lies outside of the predicted interval, if it does."""
    measured = metrics.measured
    if measured is None or measured.median_step_seconds is None:
        return None
    interval, step = _predicted(metrics, measured).step_seconds, measured.median_step_seconds
    if interval.p10 <= step <= interval.p90:
        return None
    shown = quantities.seconds
    return (
        f"The measured step of {shown(step)} is {'longer' if step > interval.p90 else 'shorter'} "
        f"than the predicted interval of {shown(interval.p10)} to {shown(interval.p90)}, which "
        "four of five runs are expected to keep."
    )


def _step_count(run: Run) -> int | None:
    """Return how many steps the run was asked for, where its arguments say so."""
    steps = run.arguments.get("steps")
    return steps if isinstance(steps, int) and not isinstance(steps, bool) else None


def _left(run: Run, metrics: RunMetrics) -> str | None:
    """Return how long the steps that are left take, while the run trains."""
    total, measured = _step_count(run), metrics.measured
    step_seconds = None if measured is None else measured.median_step_seconds
    if total is None or step_seconds is None or run.state is not RunState.RUNNING:
        return None
    return quantities.duration(max(total - (run.step or 0), 0) * step_seconds)


def _predicted(metrics: RunMetrics, measured: MeasuredSummary) -> PredictedRun:
    """Return what was predicted of the attempt that was measured."""
    return [each for each in metrics.predicted if each.from_attempt <= measured.attempt][-1]


def slowest_ranks(rows: Iterable[MeasuredStep]) -> list[MeasuredStep]:
    """Return one row for each step of each attempt: the slowest rank's, with the last loss seen."""
    by_step: dict[tuple[int, int], list[MeasuredStep]] = defaultdict(list)
    for row in rows:
        by_step[row.attempt, row.step].append(row)
    found = []
    for key in sorted(by_step):
        slowest = max(by_step[key], key=lambda row: row.step_seconds)
        losses = [row.loss for row in by_step[key] if row.loss is not None]
        found.append(slowest.model_copy(update={"loss": losses[-1] if losses else None}))
    return found


def _beside(metrics: RunMetrics) -> Iterable[Beside]:
    measured = metrics.measured
    if measured is None:
        return
    predicted = _predicted(metrics, measured)
    rows = (
        ("Step (median)", predicted.step_seconds.p50, measured.median_step_seconds, "seconds"),
        ("Tokens/s", predicted.tokens_per_second, measured.median_tokens_per_second, "rate"),
    )
    for label, expected, found, kind in rows:
        yield _row(label, expected, found, kind)
    peaks = [peak for peak in measured.peak_memory_bytes if peak is not None]
    if peaks and predicted.peak_memory_bytes:
        yield _row("Peak memory", max(predicted.peak_memory_bytes), max(peaks), "memory")


def _row(label: str, expected: float, found: float | None, kind: str) -> Beside:
    shown = {
        "seconds": quantities.exact_seconds,
        "rate": lambda value: "n/a" if value is None else f"{quantities.grouped(value)} tokens/s",
        "memory": quantities.memory,
    }[kind]
    return Beside(
        label=label,
        predicted=shown(expected),
        measured=shown(found),
        ratio="n/a" if found is None or not expected else f"{found / expected:.2f}",
    )


def _step_figure(steps: Sequence[MeasuredStep], predicted: Sequence[PredictedRun]) -> Figure:
    """Return measured steps as points, and the predicted p50 as a line in its p10 to p90 band."""
    scale = 1.0 if max(row.step_seconds for row in steps) >= 1.0 else 1e-3
    unit = "s" if scale == 1.0 else "ms"
    layout = panel(x_title="Step", y_title=f"Time of a step ({unit})", height=320)
    layout["yaxis"]["rangemode"] = "tozero"
    layout["xaxis"]["rangemode"] = "tozero"
    data: list[dict[str, Any]] = []
    for attempt, rows in _by_attempt(steps):
        follows = [each for each in predicted if each.from_attempt <= attempt]
        if follows:
            data.extend(_prediction(follows[-1], rows, scale=scale))
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": f"measured, attempt {attempt}",
                "x": [row.step for row in rows],
                "y": [row.step_seconds / scale for row in rows],
                "marker": {"size": 7, "color": "var(--accent)"},
                "hovertemplate": f"step %{{x}}: %{{y:.4g}} {unit} measured<extra></extra>",
            }
        )
    return {"data": data, "layout": layout}


def _prediction(
    predicted: PredictedRun, rows: Sequence[MeasuredStep], *, scale: float
) -> Iterable[dict[str, Any]]:
    ends = [rows[0].step, max(rows[-1].step, rows[0].step + 1)]
    step = predicted.step_seconds
    for name, seconds, dash in (
        ("p10", step.p10, "dot"),
        ("p50", step.p50, "solid"),
        ("p90", step.p90, "dot"),
    ):
        yield {
            "type": "scatter",
            "mode": "lines",
            "name": f"predicted {name}",
            "x": ends,
            "y": [seconds / scale] * 2,
            "line": {"width": _LINE_PIXELS, "dash": dash, "color": "var(--capacity)"},
            "hovertemplate": f"predicted {name}: {quantities.exact_seconds(seconds)}"
            "<extra></extra>",
        }


def _loss_figure(steps: Sequence[MeasuredStep]) -> Figure:
    layout = panel(x_title="Step", y_title="Loss", height=280)
    layout["xaxis"]["rangemode"] = "tozero"
    data: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": f"attempt {attempt}",
            "x": [row.step for row in rows],
            "y": [row.loss for row in rows],
            "line": {"width": _LINE_PIXELS, "color": "var(--cause-optimizer)"},
            "marker": {"size": 5},
            "hovertemplate": "step %{x}: loss %{y:.4g}<extra></extra>",
        }
        for attempt, rows in _by_attempt(steps)
    ]
    return {"data": data, "layout": layout}


def _by_attempt(steps: Sequence[MeasuredStep]) -> list[tuple[int, list[MeasuredStep]]]:
    found: dict[int, list[MeasuredStep]] = defaultdict(list)
    for row in steps:
        found[row.attempt].append(row)
    return sorted(found.items())


def memory_of(device_bytes: int | None) -> str:
    """Return a device's memory in words."""
    return "n/a" if device_bytes is None else f"{device_bytes / GIB:,.0f} GiB"
