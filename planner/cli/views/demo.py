"""What the demo shows: its plans, the loss, and predicted beside measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.table import Table

from planner.answers.comparison import activation_checkpointing, zero_stages
from planner.cli.views.estimates import degrees
from planner.schema.plan import Interval, Plan
from planner.schema.run import RunReport
from planner.units import format_bytes, format_seconds

_LEVELS = "▁▂▃▄▅▆▇█"


def plans_table(plans: Sequence[Plan]) -> Table:
    """Return one row per plan: what, where, how, how fast, how full, how sure."""
    table = Table(box=None, pad_edge=False)
    for heading in ("model", "cluster", "strategy"):
        table.add_column(heading, no_wrap=True)
    for heading in ("ZeRO", "checkpointing"):
        table.add_column(heading)
    for heading in ("step", "MFU", "peak", "proof"):
        table.add_column(heading, justify="right")
    for plan in plans:
        prediction, certificate = plan.prediction, plan.certificate
        proven = certificate.status == "optimal"
        table.add_row(
            plan.model.resolved.name,
            plan.cluster.resolved.name,
            degrees(plan.strategy),
            zero_stages(plan.strategy),
            activation_checkpointing(plan.strategy),
            format_seconds(prediction.step_seconds.p50),
            f"{prediction.model_flop_utilization:.1%}",
            format_bytes(max(stage.peak_memory_bytes for stage in prediction.stages)),
            "[green]optimal[/]" if proven else f"gap {certificate.gap_ratio:.1%}",
        )
    return table


def losses_line(report: RunReport) -> str:
    """Return the loss of every step as a line that falls, with its ends."""
    first, last = report.finite_losses[0], report.finite_losses[-1]
    return (
        f"loss {falling_line(report.finite_losses)} {first:.3f} → {last:.3f} in "
        f"{len(report.losses)} steps on {report.world_size} ranks ({report.backend})"
    )


def falling_line(values: Sequence[float]) -> str:
    """Return one block per value, as high as the value between the least and the greatest."""
    least, greatest = min(values), max(values)
    scale = (len(_LEVELS) - 1) / (greatest - least) if greatest > least else 0.0
    return "".join(_LEVELS[round((value - least) * scale)] for value in values)


def measured_table(plan: Plan, report: RunReport) -> Table:
    """Return predicted beside measured: the step, and the peak of each stage's fullest rank.

    The meter counts tensors, so what the runtime takes besides is left out of the prediction.
    """
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for heading in ("predicted", "80 % interval", "measured", "measured / predicted"):
        table.add_column(heading, justify="right")
    predicted = report.predicted_step_seconds
    table.add_row(
        "step (median)",
        format_seconds(predicted),
        interval_words(plan.prediction.step_seconds),
        format_seconds(report.median_step_seconds),
        _ratio(report.median_step_seconds, predicted),
    )
    for stage in plan.prediction.stages:
        peaks = [
            rank.peak_memory_bytes
            for rank in report.ranks
            if rank.stage == stage.stage and rank.peak_memory_bytes is not None
        ]
        if peaks:
            tensors = stage.peak_memory_bytes - stage.memory_bytes.runtime
            table.add_row(
                f"peak of tensors, stage {stage.stage}",
                format_bytes(tensors),
                "",
                format_bytes(max(peaks)),
                _ratio(max(peaks), tensors),
            )
    return table


def learnt_lines(learnt: Interval | None, directory: Path) -> Iterator[str]:
    """Yield what calibrating on the run changed, and how to use it."""
    if learnt is None:
        yield "calibrating on this run did not make the prediction better: the profile stays"
        return
    step = format_seconds(learnt.p50)
    yield f"calibrated on this run, the same step is predicted as {step} ({interval_words(learnt)})"
    yield f"to plan with what was learnt, add --calibration {directory / 'here.yaml'}"


def interval_words(interval: Interval) -> str:
    """Return both ends of an interval."""
    return f"{format_seconds(interval.p10)} to {format_seconds(interval.p90)}"


def _ratio(measured: float, predicted: float) -> str:
    return f"{measured / predicted:.2f}" if predicted > 0.0 else "-"
