"""Launched rank: what ties the rank of this process to the others of its launch."""

from __future__ import annotations

import os
from dataclasses import dataclass

from executor.ending import Ending
from executor.environment import RankEnvironment
from executor.termination import Termination
from executor.timeouts import Timeouts


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchedRank:
    """How ranks wait for one another, and end together, at the latest after `step_limit` steps."""

    ending: Ending
    timeouts: Timeouts
    termination: Termination | None
    step_limit: int | None = None

    @staticmethod
    def of_process(environment: RankEnvironment) -> LaunchedRank:
        """Return what ties this rank of the initialised process group to others, at work."""
        ending = Ending.of_process()
        return LaunchedRank(
            ending=ending,
            timeouts=environment.timeouts,
            termination=Termination.watched(
                os.environ,
                rank=environment.rank,
                begun=lambda: ending.begun_steps,
                has_failed=ending.has_failed,
            ),
            step_limit=environment.step_limit,
        )
