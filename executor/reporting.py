"""Reporting: the run report, predicted beside measured, from what the ranks left."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from executor.outcome import RankOutcome
from planner.schema.measured_run import MeasuredRun
from planner.schema.plan import Interval, Plan, StagePrediction
from planner.schema.run import AppliedNumerics, RankReport, RunReport
from planner.units import GIB, format_bytes, format_seconds

# The first step builds communicators and buffers; no other does.
WARM_UP_STEPS = 1
SHOWN_RANKS = 16


def run_report(plan: Plan, outcomes: Sequence[RankOutcome], *, device_type: str) -> RunReport:
    """Return the report of a completed run; `outcomes` may be those of one node's ranks."""
    ranks = tuple(outcome.report for outcome in outcomes if outcome.report is not None)
    return RunReport(
        plan_id=plan.id,
        device=device_type,
        backend=outcomes[0].backend,
        world_size=plan.strategy.world_size,
        status="stopped" if any(outcome.is_stopped for outcome in outcomes) else "completed",
        losses=outcomes[0].losses,
        median_step_seconds=median_step_seconds(ranks),
        predicted_step_seconds=plan.prediction.step_seconds.p50,
        predicted_step_interval=plan.prediction.step_seconds,
        ranks=ranks,
        predicted_peak_memory_bytes=tuple(
            predicted_tensor_bytes(stage) for stage in plan.prediction.stages
        ),
        torch_version=outcomes[0].torch_version,
    )


def measured_run(plan: Plan, report: RunReport) -> MeasuredRun:
    """Return the run as a row that `meshwright validate` and `calibrate` read."""
    peaks = [rank.peak_memory_bytes for rank in report.ranks if rank.peak_memory_bytes]
    return MeasuredRun(
        id=plan.id,
        family="meshwright",
        plan=plan,
        outcome="ok",
        step_time_s=report.median_step_seconds or None,
        steps_s=tuple(timed_steps(report.ranks)),
        peak_mem_gib=max(peaks) / GIB if peaks else None,
        mem_class="torch_allocated" if peaks else None,
    )


def predicted_tensor_bytes(stage: StagePrediction) -> float:
    """Return the predicted peak of a stage's tensors, which is what ranks measure.

    The device's context, libraries and allocator slack are outside of any tensor.
    """
    return stage.peak_memory_bytes - stage.memory_bytes.runtime


def median_step_seconds(ranks: Sequence[RankReport]) -> float:
    """Return the median over steps of the slowest rank's seconds, without warm-up steps."""
    steps = timed_steps(ranks)
    return statistics.median(steps) if steps else 0.0


def timed_steps(ranks: Sequence[RankReport]) -> list[float]:
    """Return the slowest rank's seconds of each step, without warm-up steps if there are others."""
    by_step = [max(step) for step in zip(*(rank.step_seconds for rank in ranks), strict=True)]
    return by_step[WARM_UP_STEPS:] or by_step


def summary_lines(report: RunReport) -> list[str]:
    """Return what a person wants to know of the run, a line each."""
    place = f"{report.world_size} ranks on {report.device} ({report.backend})"
    if not report.losses:
        nothing = f"{place}, no step: the loader gave no batch, or none that is still to be taken"
        return [nothing, *difference_lines(report)]
    measured = format_seconds(report.median_step_seconds)
    predicted = format_seconds(report.predicted_step_seconds)
    interval = interval_words(report.predicted_step_interval)
    lines = [
        f"{place}, {len(report.losses)} steps",
        f"loss: {_loss(report.losses[0])} -> {_loss(report.losses[-1])}",
        *numeric_lines(report),
        f"step: measured {measured} (median), predicted {predicted}{interval}",
    ]
    for stage, predicted_bytes in enumerate(report.predicted_peak_memory_bytes):
        peaks = [rank.peak_memory_bytes for rank in report.ranks if rank.stage == stage]
        if not peaks:
            continue  # another node's
        known = [peak for peak in peaks if peak is not None]
        peak = format_bytes(max(known)) if known else "not metered"
        foreseen = format_bytes(predicted_bytes)
        lines.append(f"stage {stage} peak tensor memory: measured {peak}, predicted {foreseen}")
    return [*lines, *rank_lines(report), *difference_lines(report)]


def numeric_lines(report: RunReport) -> Iterator[str]:
    """Yield what was done to the numbers of steps, and which losses were none."""
    first = report.ranks[0] if report.ranks else None
    if first is not None and first.numerics is not None:
        yield f"applied: {_numerics(first.numerics)}"
    if first is not None and first.undefined_losses is not None:
        found = first.undefined_losses
        yield (
            f"the loss was no finite number in {found.step_count} steps, first in step "
            f"{found.first_step} on ranks {in_ranges(found.ranks)}"
        )


def _numerics(applied: AppliedNumerics) -> str:
    norm, scale, target = (
        applied.largest_gradient_norm,
        applied.loss_scale,
        applied.ignored_target,
    )
    parts = [
        applied.precision,
        f"the loss gets {applied.logits_format}",
        "gradients are not clipped" if norm is None else f"gradients are clipped to {norm:g}",
    ]
    parts += [] if scale is None else [f"the loss is scaled by {scale:g}"]
    parts += [] if target is None else [f"targets of {target} are left out"]
    return ", ".join(parts)


def _loss(loss: float | None) -> str:
    return "no finite number" if loss is None else f"{loss:.4f}"


def interval_words(interval: Interval | None) -> str:
    """Return the interval of a prediction in brackets, nothing where there is none."""
    if interval is None:
        return ""
    return f" (80 % interval {format_seconds(interval.p10)} to {format_seconds(interval.p90)})"


def rank_lines(report: RunReport) -> Iterator[str]:
    """Yield what each rank holds and measured beside what was predicted, of the first ranks."""
    for rank in report.ranks[:SHOWN_RANKS]:
        predicted = report.predicted_peak_memory_bytes[rank.stage]
        peak = "peak not metered"
        if rank.peak_memory_bytes is not None:
            ratio = rank.peak_memory_bytes / predicted if predicted else 0.0
            peak = f"peak {format_bytes(rank.peak_memory_bytes)}, {ratio:.2f} of predicted"
        step = format_seconds(median_step_seconds([rank]))
        held = ", ".join(f"{count} {axes}" for axes, count in rank.placements.items())
        yield (
            f"rank {rank.rank} (stage {rank.stage}): blocks {in_ranges(rank.blocks)}, parameters "
            f"{held or 'unknown'}; {peak}; step {step}"
        )
    if len(report.ranks) > SHOWN_RANKS:
        yield f"{len(report.ranks) - SHOWN_RANKS} more ranks stand in the report"


def difference_lines(report: RunReport) -> Iterator[str]:
    """Yield each way in which ranks differ from the plan, once for all of them."""
    found: dict[str, list[int]] = {}
    for rank in report.ranks:
        for text in rank.differences_from_plan:
            found.setdefault(text, []).append(rank.rank)
    for text, ranks in found.items():
        yield f"{'rank' if len(ranks) == 1 else 'ranks'} {in_ranges(ranks)}: {text}"


def in_ranges(numbers: Sequence[int]) -> str:
    """Return sorted numbers as `0-3, 5`, and `none` where there are none."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    shown = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return ", ".join(shown) or "none"
