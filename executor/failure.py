"""Failure: which rank failed first, when the fall of one has torn down the others."""

from __future__ import annotations

import re
import signal
from pathlib import Path

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from executor.errors import RankFailedError, RefusedError
from executor.outcome import outcome_path, read_outcome
from executor.rank_place import read_places, who_did_not_come
from planner.errors import MeshwrightError

_TIMEOUT = re.compile(r"time(?:d |-)?out", re.IGNORECASE)
_LOST_PEER = re.compile(
    r"Connection (?:closed|reset) by (?:remote )?peer|Broken pipe", re.IGNORECASE
)


def root_failure(error: ChildFailedError, directory: Path) -> MeshwrightError:
    """Return the failure that came first, and of ranks that waited in vain whom they waited for.

    A rank that was killed left no outcome, and its peers then failed on their connections: so a
    death without a word goes before errors, and of errors the earliest counts. One that exited by
    itself without a word goes before lost connections. Death by SIGTERM is what torch's agent gives
    the others once one has failed, and goes behind all errors.
    """
    failures: dict[int, ProcessFailure] = dict(
        sorted(error.failures.items(), key=lambda item: item[1].timestamp)
    )
    return _late_rank(failures, directory) or _first(error, failures, directory)


def _first(
    error: ChildFailedError, failures: dict[int, ProcessFailure], directory: Path
) -> MeshwrightError:
    """Return the failure that came first of those that are no waiting in vain."""
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
                return RefusedError(outcome.error, is_lasting=outcome.is_lasting)
            return RankFailedError(rank, _plain(outcome.error))
    for rank in exited:
        return RankFailedError(rank, _death(failures[rank].exitcode))
    rank, failure = error.get_first_failure()
    return RankFailedError(rank, _death(failure.exitcode))


def is_timeout(error: str) -> bool:
    """Return whether an error is that of a rank that waited in vain."""
    return _TIMEOUT.search(error) is not None


def _late_rank(failures: dict[int, ProcessFailure], directory: Path) -> RankFailedError | None:
    """Return, where ranks waited in vain, the failure of the rank for which they did.

    Over gloo they raise; NCCL's watchdog aborts their processes.
    """
    outcomes = [read_outcome(directory, rank) for rank in failures]
    errors = [outcome.error for outcome in outcomes if outcome is not None and outcome.error]
    aborted = [rank for rank in failures if failures[rank].exitcode == -signal.SIGABRT]
    if not aborted and not any(map(is_timeout, errors)):
        return None
    for late in who_did_not_come(read_places(directory)):
        return RankFailedError(
            late.rank,
            f"did not come to where other ranks waited: it had begun {late.begun_steps} "
            f"step{'s' * (late.begun_steps != 1)}, and was at {late.line}",
        )
    return None


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
