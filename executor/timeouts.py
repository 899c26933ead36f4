"""Timeouts: how long ranks wait for one another while a run starts, and in its steps.

torch gives the limit of `init_process_group` to the world's group alone: all others, of meshes and
pipelines and of a script, wait as long as its defaults say (30 minutes, 10 over NCCL).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from torch.distributed import distributed_c10d as c10d

from executor.step_rows import Measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """The seconds after which a rank that waits for another gives up.

    `start_seconds` holds until the first step has ended, in which kernels are compiled and
    communicators built; `step_seconds` holds from then on.
    """

    start_seconds: float
    step_seconds: float

    def start(self) -> None:
        """Hold every group to the limit of the start: those there are, and those made later."""
        _limit(self.start_seconds)

    def step_begins(self) -> None:
        """Do nothing: a limit changes between steps."""

    def step_ended(self, step: int, measured: Measured) -> None:  # noqa: ARG002 - an observer's
        """Hold every group to the limit of steps."""
        if _default_seconds() != self.step_seconds:
            _limit(self.step_seconds)


def _limit(seconds: float) -> None:
    limit = timedelta(seconds=seconds)
    c10d.default_pg_timeout = limit
    c10d.default_pg_nccl_timeout = limit  # type: ignore[attr-defined]
    c10d._get_default_store().set_timeout(limit)  # noqa: SLF001 - torch has no public name
    for group in c10d._world.pg_map:  # noqa: SLF001 - as above
        c10d._set_pg_timeout(limit, group)  # noqa: SLF001 - as torchtitan's set_pg_timeouts


def _default_seconds() -> float:
    return float(c10d.default_pg_timeout.total_seconds())
