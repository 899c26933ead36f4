"""Background save: a checkpoint that is written while the run goes on, one at a time.

Tensors are copied to the host first, so that steps may change them. Threads of ranks write and
agree over a group of their own: collectives of the training never mix with theirs. Whoever ends the
process group meanwhile, as scripts do at their end, waits until it is written.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import wraps

import torch
from torch import distributed
from torch.distributed import distributed_c10d
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

from executor.open_files import flush_open_files

_unheard: list[BaseException] = []
_going_on: set[Future[None]] = set()
Write = Callable[[distributed.ProcessGroup], None]


class BackgroundSaves:
    """The save that is being written, if any."""

    def __init__(self) -> None:
        self._group: distributed.ProcessGroup | None = None
        self._running: Future[None] | None = None

    def start(self, write: Write) -> None:
        """Have a thread write; the one before must have ended. A collective call."""
        if self._group is None:
            self._group = distributed.new_group(backend="gloo")
            atexit.register(self._hear)
            _end_groups_after_saves()
        running: Future[None] = Future()
        _going_on.add(running)
        running.add_done_callback(_going_on.discard)
        # It is no daemon: a process that ends waits for its checkpoint.
        threading.Thread(
            target=_run, args=(write, self._group, running), name="background-save"
        ).start()
        self._running = running

    def finish(self) -> None:
        """Return once what was being written is a checkpoint.

        Raises:
            CheckpointError: if it could not be written, on every rank.
        """
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def _hear(self) -> None:
        """Say that the last save failed where the script has ended without asking."""
        unheard = None if self._running is None else self._running.exception()
        if unheard is not None:
            line = f"error: the last save in the background failed: {unheard}"
            print(line, file=sys.stderr, flush=True)  # noqa: T201 - nobody else will say it
            _unheard.append(unheard)


def end_with_status() -> None:
    """End this process with status 1 where a failed save was not asked for; Python's would be 0.

    It is for the last of the handlers at exit.
    """
    if _unheard:
        flush_open_files()
        os._exit(1)


def on_host(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return copies of tensors in host memory, pinned where they come from a GPU."""
    has_gpu = torch.cuda.is_available()
    options = StagingOptions(
        use_pinned_memory=has_gpu,
        use_shared_memory=False,
        use_async_staging=False,
        use_non_blocking_copy=has_gpu,
    )
    stager = DefaultStager(options)
    try:
        staged = stager.stage(dict(tensors))
    finally:
        stager.close()
    assert isinstance(staged, dict)  # noqa: S101 - a future only where staging is asynchronous
    return staged


def _end_groups_after_saves() -> None:
    """Have torch end groups when nothing is being written over one of them."""
    end = distributed.destroy_process_group
    if hasattr(end, "__wrapped__"):
        return

    @wraps(end)
    def end_after_saves(group: distributed.ProcessGroup | None = None) -> None:
        wait(list(_going_on))
        end(group)

    for module in (distributed, distributed_c10d):
        module.destroy_process_group = end_after_saves  # type: ignore[attr-defined]


def _run(write: Write, group: distributed.ProcessGroup, running: Future[None]) -> None:
    try:
        write(group)
    except Exception as error:  # noqa: BLE001 - whatever it is, who asks for the end hears of it
        running.set_exception(error)
    else:
        running.set_result(None)
