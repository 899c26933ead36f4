"""Step observers: all that is told of a rank's steps, as the environment asks for it."""

from __future__ import annotations

from collections.abc import Mapping

from executor.launched_rank import LaunchedRank
from executor.progress_line import ProgressLine
from executor.step_profile import StepProfile
from executor.step_rows import StepObserver, StepRows
from executor.tracker import Tracker
from planner.schema.plan import Plan


def wanted_observers(
    plan: Plan,
    variables: Mapping[str, str],
    *,
    rank: int,
    launched: LaunchedRank | None,
) -> tuple[StepObserver, ...]:
    """Return what is told of each step of a rank, in this order.

    Raises:
        LaunchError: if the environment asks for what there is not.
    """
    job = plan.job.resolved
    tokens = (job.global_batch_size or 0) * (job.sequence_length or 0)
    found = (
        StepRows.wanted(variables, rank=rank, tokens_per_step=tokens),
        ProgressLine.wanted(plan, variables, rank=rank),
        StepProfile.wanted(variables, rank=rank),
        Tracker.wanted(plan, variables, rank=rank, tokens_per_step=tokens),
    )
    first = () if launched is None else (launched.ending, launched.timeouts)
    return (*first, *(observer for observer in found if observer is not None))
