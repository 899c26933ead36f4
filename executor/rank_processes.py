"""Rank processes: this node's ranks, from their start to their end, as torch's agent runs them."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import elastic_launch

from executor import variables as names
from executor.errors import RankFailedError
from executor.failure import root_failure
from executor.outcome import RankOutcome, read_outcome
from executor.process_end import ended_badly
from executor.rendezvous import NodePlace, launch_config
from executor.termination import Stop

_ELASTIC = "torch.distributed.elastic"


def run_ranks(
    place: NodePlace,
    script: Sequence[str],
    *,
    world_size: int,
    variables: Mapping[str, str],
    directory: Path,
) -> list[RankOutcome]:
    """Run this node's ranks to their end and return what each left.

    Raises:
        RefusedError: if they refused what the script gave them.
        RankFailedError: if one did not end well.
        SignalException: if they were asked to stop and did not end well.
    """
    local_ranks = place.local_ranks(world_size)
    stop = Stop(directory, rank_count=local_ranks)
    config = launch_config(
        place,
        local_ranks=local_ranks,
        meeting_seconds=float(variables[names.START_TIMEOUT_SECONDS]),
        log_directory=directory,
    )
    command = elastic_launch(config, sys.executable)
    with _environment(variables), _quiet_elastic(), _stopping_in_order(stop):
        try:
            command("-u", "-m", "executor.rank_main", *script)
        except ChildFailedError as error:
            if stop.is_asked and not _any_spoke(error, directory):
                raise SignalException("asked to stop", signal.SIGTERM) from None
            check_all_was_done(error, directory)
    ranks = range(world_size)
    found = [outcome for rank in ranks if (outcome := read_outcome(directory, rank)) is not None]
    for outcome in found:
        if outcome.report is None:
            raise RankFailedError(outcome.rank, "ended without a report")
    if len(found) < local_ranks:
        first = min(set(ranks) - {outcome.rank for outcome in found})
        raise RankFailedError(first, "ended without a report")
    return found


def check_all_was_done(error: ChildFailedError, directory: Path) -> None:
    """Say which ranks ended badly if that was after all their work.

    Raises:
        RefusedError: if they refused what the script gave them.
        RankFailedError: if one failed at its work.
    """
    for rank in error.failures:
        outcome = read_outcome(directory, rank)
        if outcome is None or outcome.report is None:
            raise root_failure(error, directory) from None
    for rank, failure in error.failures.items():
        said = ended_badly(directory, rank, failure.exitcode)
        print(f"warning: {said}; what it had still to write is lost", file=sys.stderr)  # noqa: T201


def _any_spoke(error: ChildFailedError, directory: Path) -> bool:
    """Return whether a rank of those that failed has left word of how it ended."""
    return any(read_outcome(directory, rank) is not None for rank in error.failures)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set `variables` while ranks are started: the elastic agent hands its own environment on."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _stopping_in_order(stop: Stop) -> Iterator[None]:
    """Let ranks end after their step on SIGTERM, which torch's agent would end at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ask(number: int, _frame: FrameType | None) -> None:
        if not stop.ask():
            raise SignalException("asked to stop", signal.Signals(number))

    before = signal.signal(signal.SIGTERM, ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _quiet_elastic() -> Iterator[None]:
    """Silence the agent's own log: what matters of a failure is said once, by us."""
    # Its modules have levels of their own.
    modules = [name for name in logging.root.manager.loggerDict if name.startswith(_ELASTIC)]
    loggers = [logging.getLogger(name) for name in (_ELASTIC, *modules)]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
