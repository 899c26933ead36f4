"""Failure: which rank failed first, when the fall of one has torn down the others."""

from __future__ import annotations

import re
import signal
from pathlib import Path

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from executor.errors import RankFailedError, RefusedError
from executor.outcome import outcome_path, read_outcome
from planner.errors import MeshwrightError

_LOST_PEER = re.compile(
    r"Connection (?:closed|reset) by (?:remote )?peer|Broken pipe", re.IGNORECASE
)


def root_failure(error: ChildFailedError, directory: Path) -> MeshwrightError:
    """Return the failure that came first.

    A rank that was killed left no outcome, and its peers then failed on their connections: so a
    death without a word goes before errors, and of errors the earliest counts. One that exited by
    itself without a word goes before lost connections. Death by SIGTERM is what torch's agent gives
    the others once one has failed, and goes behind all errors.
    """
    failures: dict[int, ProcessFailure] = dict(error.failures)
    silent = [rank for rank in failures if not outcome_path(directory, rank).is_file()]
    for rank in silent:
        if failures[rank].exitcode < 0 and failures[rank].exitcode != -signal.SIGTERM:
            return RankFailedError(rank, _death(failures[rank].exitcode))
    spoken = sorted(
        (path.stat().st_mtime_ns, rank)
        for rank in failures
        if (path := outcome_path(directory, rank)).is_file()
    )
    exited = [rank for rank in silent if failures[rank].exitcode > 0]
    for _, rank in spoken:
        outcome = read_outcome(directory, rank)
        if outcome is not None and outcome.error is not None:
            if exited and _LOST_PEER.search(outcome.error):
                break
            if outcome.is_refusal:
                return RefusedError(outcome.error)
            return RankFailedError(rank, _plain(outcome.error))
    for rank in exited:
        return RankFailedError(rank, _death(failures[rank].exitcode))
    rank, failure = error.get_first_failure()
    return RankFailedError(rank, _death(failure.exitcode))


def _plain(error: str) -> str:
    """Return an error; of a lost connection, what it is a sign of instead of gloo's own places."""
    reset = _LOST_PEER.search(error)
    if reset is None:
        return error
    return f"lost its connection to another rank, which may have ended first ({reset[0]})"


def _death(exit_code: int) -> str:
    if exit_code >= 0:
        return f"ended with exit status {exit_code} and no message"
    return f"was killed by {signal.Signals(-exit_code).name}"
