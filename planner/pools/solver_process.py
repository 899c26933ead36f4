"""One solver process: a pipe in, a pipe out, and an end that takes its children along."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from typing import Any, Self

from planner.errors import MeshwrightError, SolveError

_END_SECONDS = 5.0
# What nice(1) adds where nobody says how much.
_NICENESS = 10


class SolverProcess:
    """The parent's side of a process that runs one function at a time."""

    has_begun = True

    def __init__(self, process: BaseProcess, connection: Connection) -> None:
        self._process = process
        self._pid = process.pid or 0
        self._connection = connection
        self._killed = False

    @classmethod
    def start(cls, context: ForkServerContext) -> Self:
        """Start a process and return it, ready to be sent a call."""
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs,), name="solver", daemon=True)
        process.start()
        theirs.close()
        return cls(process, ours)

    @property
    def pid(self) -> int:
        """Return the operating system's number for the process."""
        return self._pid

    @property
    def alive(self) -> bool:
        """Return whether the process still runs."""
        return self._process.is_alive()

    def send(self, call: tuple[Any, ...], *, reports: bool) -> None:
        """Have the process run `call`; `reports` says whether somebody listens to progress.

        Raises:
            OSError: if the process is gone.
        """
        self._connection.send((*call, reports))

    def wait(self, seconds: float) -> bool:
        """Return whether something can be received, waiting at most `seconds`."""
        return self._connection.poll(seconds)

    def receive(self) -> tuple[str, Any]:
        """Return the next message: `progress`, `result` or `error`, and its content.

        Raises:
            EOFError: if the process is gone.
        """
        message: tuple[str, Any] = self._connection.recv()
        return message

    def kill(self) -> None:
        """End the process and what it started, at once; only the first call does something."""
        if self._killed:
            return
        self._killed = True
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(OSError, ValueError):
            self._process.kill()

    def close(self) -> None:
        """Give pipes back, after a kill; nothing can be sent or received afterwards.

        An error that is kept keeps its frames, and this object with them: what is left open here
        would stay open until the garbage collector finds the cycle.
        """
        self._connection.close()
        self._process.join(_END_SECONDS)
        if self._process.exitcode is not None:
            self._process.close()

    def ending(self) -> str:
        """Return how the process ended, for a message."""
        self._process.join(_END_SECONDS)
        code = self._process.exitcode
        if code is None:
            return "it no longer answers"
        return f"signal {-code}" if code < 0 else f"exit code {code}"


def _serve(connection: Connection) -> None:
    """Answer calls until the other side is gone."""
    os.setpgid(0, 0)
    _yield_to_answers()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    while True:
        try:
            function, args, kwargs, reports = connection.recv()
        except EOFError:
            return
        if reports:
            kwargs["on_progress"] = _Reporter(connection)
        connection.send(_outcome(function, args, kwargs))


def _yield_to_answers() -> None:
    """Let answers go first where they share cores with solves.

    A solve wants a core for seconds, an answer one for milliseconds. Under Linux's idle policy a
    solve leaves its core as soon as the service wakes up (sched(7)); a mere niceness lets it finish
    its turn first, and stands where a kernel or a container does not allow the policy.
    """
    os.nice(_NICENESS)
    with contextlib.suppress(AttributeError, OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def _end_with_parent() -> None:
    """Leave nothing running for a service that is gone."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os.killpg(0, signal.SIGKILL)


class _Reporter:
    """Sends what the function says about its progress."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __call__(self, progress: object) -> None:
        self._connection.send(("progress", progress))


def _outcome(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[str, Any]:
    try:
        return "result", function(*args, **kwargs)
    except MeshwrightError as error:
        return "error", _portable(error)
    except Exception as error:  # noqa: BLE001 - it is raised again on the other side
        error.add_note("".join(traceback.format_exception(error)))  # frames do not go along
        return "error", _portable(error)


def _portable(error: Exception) -> Exception:
    """Return `error` itself where it survives the way, otherwise its name and text."""
    try:
        copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    except Exception:  # noqa: BLE001 - whatever hinders it, the answer is the same
        return SolveError(f"{type(error).__name__}: {error}")
    return error if type(copy) is type(error) else SolveError(str(error))
