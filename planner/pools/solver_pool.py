"""A pool of processes behind `concurrent.futures.Executor` whose tasks can be killed.

The standard `ProcessPoolExecutor` breaks as a whole when one process dies. Here each task has a
process to itself while it runs, so killing one, or its dying, harms no other; the next task gets a
new process. Threads of a standard pool wait for the answers, so the queue is theirs.

    submit ──> thread ──pipe──> process        progress, then a result or an error, come back
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, Protocol

from planner.errors import SolveCancelledError, SolveError, SolverDiedError, SolveTimeLimitError
from planner.pools.solver_process import SolverProcess

# all that tasks import, so that a process that starts later runs the code that this one does
PRELOADED_MODULES = (
    "planner.pools.solver_process",
    "planner.planning",
    "planner.tuning.decision",
    "pulp",
    "highspy",
)
_PATIENCE_SECONDS = 0.5


class TaskProcess(Protocol):
    """What a task runs in, seen from the thread that waits for its answer."""

    @property
    def pid(self) -> int:
        """Return the operating system's number for it, 0 where it is another machine's."""

    @property
    def has_begun(self) -> bool:
        """Return whether it is at work, and not waiting for a place."""

    def send(self, call: tuple[Any, ...], *, reports: bool) -> None:
        """Have it run the call; `reports` says whether somebody listens to progress."""

    def wait(self, seconds: float) -> bool:
        """Return whether something can be received, waiting at most `seconds`."""

    def receive(self) -> tuple[str, Any]:
        """Return the next message: `progress`, `result` or `error`, and its content."""

    def kill(self) -> None:
        """End it at once."""

    def close(self) -> None:
        """Give back what it holds, after a kill or its last answer."""

    def ending(self) -> str:
        """Return how it ended, for a message."""


class SolverPool(Executor):
    """Runs functions in processes of their own, `process_count` at a time.

    A function with a parameter `on_progress` may be submitted with a listener for it; what it
    reports is handed to the listener here, in the thread that waits for the answer.
    """

    def __init__(
        self, *, process_count: int, seconds_limit: float, modules: tuple[str, ...] = ()
    ) -> None:
        """`modules` are loaded ahead in its processes, beside the planner."""
        # A solve gains nothing from threads of its matrix products, and others lose their cores.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([*PRELOADED_MODULES, *modules])
        self._seconds_limit = seconds_limit
        self._threads = ThreadPoolExecutor(process_count, thread_name_prefix="solve")
        self._idle: list[SolverProcess] = []
        self._tasks: dict[Future[Any], _Task] = {}
        self._lock = threading.Lock()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Return the future of `fn(*args, **kwargs)`, which runs as soon as a process is free.

        The future fails with `SolverDiedError`, `SolveTimeLimitError` or `SolveCancelledError`
        where the process was lost, and with `fn`'s own error otherwise.
        """
        task = _Task(on_progress=kwargs.pop("on_progress", None))
        with self._lock:
            future = self._threads.submit(self._run, task, (fn, args, kwargs))
            self._tasks[future] = task
        future.add_done_callback(self._forget)
        return future

    def warm_up(self) -> None:
        """Start a process ahead of the first task, without waiting for it."""
        self._threads.submit(self._start_idle)

    def kill(self, future: Future[Any]) -> None:
        """End the task behind `future`, whether it waits or runs; one that ended is left alone."""
        if future.cancel():
            return
        with self._lock:
            task = self._tasks.get(future)
        if task is not None:
            task.kill()

    def process_ids(self) -> tuple[int, ...]:
        """Return the processes that run a task now."""
        with self._lock:
            tasks = list(self._tasks.values())
        return tuple(task.process.pid for task in tasks if task.process and task.has_begun)

    @property
    def waiting_count(self) -> int:
        """Return how many tasks have no process yet."""
        with self._lock:
            return sum(not task.has_begun for task in self._tasks.values())

    def check(self) -> None:
        """Refuse a task that could not be run anywhere; here there is always a place for one.

        Raises:
            DaskLostError: if tasks run elsewhere and that cannot be reached.
        """

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more tasks; with `cancel_futures`, also end those that wait or run."""
        if cancel_futures:
            with self._lock:
                futures = list(self._tasks)
            for future in futures:
                self.kill(future)
        self._threads.shutdown(wait=wait, cancel_futures=cancel_futures)
        with self._lock:
            idle, self._idle = self._idle, []
        for process in idle:
            process.kill()
            process.close()

    def _forget(self, future: Future[Any]) -> None:
        with self._lock:
            self._tasks.pop(future, None)

    def _run(self, task: _Task, call: tuple[Any, ...]) -> Any:
        process = self._take()
        try:
            task.start(process)
            process.send(call, reports=task.on_progress is not None)
            answer = self._answer(task, process)
        except BaseException:
            process.kill()
            process.close()
            raise
        self._give_back(process)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _start_idle(self) -> None:
        process = SolverProcess.start(self._context)
        with self._lock:
            self._idle.append(process)

    def _take(self) -> TaskProcess:
        with self._lock:
            while self._idle:
                process = self._idle.pop()
                if process.alive:
                    return process
        return SolverProcess.start(self._context)

    def _give_back(self, process: TaskProcess) -> None:
        if isinstance(process, SolverProcess):
            with self._lock:
                self._idle.append(process)

    def _answer(self, task: _Task, process: TaskProcess) -> Any:
        """Return the result, or the error that the function raised there."""
        deadline = time.monotonic() + self._seconds_limit
        try:
            while True:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise SolveTimeLimitError(
                        f"the solve was ended after the service's limit of "
                        f"{self._seconds_limit:g} s; a lower job.limits.solver_seconds gives the "
                        "best plan found by then"
                    )
                if not process.wait(min(left, _PATIENCE_SECONDS)):
                    continue
                kind, content = process.receive()
                if kind != "progress":
                    return content
                if task.on_progress is not None:
                    task.on_progress(content)
        except (EOFError, OSError) as error:
            raise task.loss(process) from error


class _Task:
    """What can be killed: with or without a process yet."""

    def __init__(self, *, on_progress: Callable[[Any], None] | None) -> None:
        self.on_progress = on_progress
        self.process: TaskProcess | None = None
        self._killed = False
        self._lock = threading.Lock()

    @property
    def has_begun(self) -> bool:
        return self.process is not None and self.process.has_begun

    def start(self, process: TaskProcess) -> None:
        with self._lock:
            if self._killed:
                raise SolveCancelledError("the solve was cancelled")
            self.process = process

    def kill(self) -> None:
        with self._lock:
            self._killed = True
            if self.process is not None:
                self.process.kill()

    def loss(self, process: TaskProcess) -> SolveError:
        if self._killed:
            return SolveCancelledError("the solve was cancelled")
        return SolverDiedError(
            f"the solver's process died ({process.ending()}); submit the request again"
        )
