"""Profile table: measured beside predicted by category, and which rank the others wait for."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from executor.step_profile import PROFILED_STEPS, WARM_UP_STEPS, ProfileSummary
from planner.schema.plan import Plan
from planner.units import format_seconds

# Of the ranks' median: less is what ranks differ by anyway.
STRAGGLER_RATIO = 1.1


def read_summaries(folder: Path) -> list[ProfileSummary]:
    """Return what the ranks of this node have recorded, by rank."""
    paths = folder.glob("rank-*.summary.json")
    found = [ProfileSummary.model_validate_json(path.read_bytes()) for path in paths]
    return sorted(found, key=lambda summary: summary.rank)


def profile_lines(plan: Plan, summaries: Sequence[ProfileSummary]) -> Iterator[str]:
    """Yield the mean rank's step by category beside the prediction, and who is slow."""
    if not summaries:
        yield (
            f"nothing was profiled: {PROFILED_STEPS} steps are, after {WARM_UP_STEPS}, and the run "
            "had fewer"
        )
        return
    first = summaries[0]
    last_step = first.first_step + first.step_count - 1
    yield f"steps {first.first_step} to {last_step}, mean of {len(summaries)} ranks:"
    predicted = plan.prediction.breakdown_seconds
    communicated = (
        predicted.tensor_parallel
        + predicted.context_parallel
        + predicted.expert_parallel
        + predicted.pipeline_point_to_point
        + predicted.data_parallel_exposed
        + predicted.bubble
    )
    yield _row(
        "compute", _mean(summaries, "compute_seconds"), predicted.compute + predicted.recompute
    )
    exposed = statistics.fmean(sum(item.exposed_seconds.values()) for item in summaries)
    yield _row("exposed collectives and bubble", exposed, communicated)
    for kind in sorted({kind for item in summaries for kind in item.exposed_seconds}):
        mean = statistics.fmean(item.exposed_seconds.get(kind, 0.0) for item in summaries)
        yield f"  {kind}: {format_seconds(mean)}"
    yield _row("optimizer", _mean(summaries, "optimizer_seconds"), predicted.optimizer)
    yield _row(
        "host and offload",
        _mean(summaries, "host_seconds"),
        predicted.host + predicted.offload_exposed,
    )
    between = _mean(summaries, "between_seconds")
    yield f"between steps, in the script and its loader: {format_seconds(between)}"
    yield from straggler_lines(summaries)


def straggler_lines(summaries: Sequence[ProfileSummary]) -> Iterator[str]:
    """Yield each rank's seconds outside of waiting where some are slower than the others."""
    own = {summary.rank: summary.own_seconds for summary in summaries}
    median = statistics.median(own.values())
    slow = {rank: seconds for rank, seconds in own.items() if seconds > STRAGGLER_RATIO * median}
    for rank, seconds in sorted(slow.items(), key=lambda item: -item[1]):
        yield (
            f"rank {rank} is slow: {format_seconds(seconds)} a step outside of waiting, "
            f"{seconds / median:.2f} times the ranks' median ({format_seconds(median)})"
        )
    if not slow:
        yield f"no rank is slow: {format_seconds(median)} a step outside of waiting (median)"


def _mean(summaries: Sequence[ProfileSummary], field: str) -> float:
    return statistics.fmean(getattr(summary, field) for summary in summaries)


def _row(name: str, measured: float, predicted: float) -> str:
    return f"{name}: measured {format_seconds(measured)}, predicted {format_seconds(predicted)}"
