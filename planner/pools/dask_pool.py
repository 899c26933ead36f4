"""A pool whose tasks run on the workers of a Dask cluster: cancelled, limited and watched as here.

    submit ──> thread ──scheduler──> worker ──pipe──> process of its own
                  <── events: begun, progress ──
                  <── result, or the error ────

A worker that is lost has its task begun once more on another, and not a second time. What a
scheduler that is lost had under way fails with `DaskLostError`; later tasks look for it again.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from concurrent.futures import Future as CallFuture
from queue import Empty, SimpleQueue
from typing import Any
from uuid import uuid4

from distributed import Client, Future, KilledWorker

from planner.errors import DaskLostError, InputError, SolverDiedError
from planner.pools.dask_worker import run_task
from planner.pools.solver_pool import SolverPool, TaskProcess
from planner.version import planner_version

# Each task that waits for the cluster has a thread here that does nothing.
_TASKS_AT_MOST = 256
_CONNECT_SECONDS = 5.0
_RETRY_SECONDS = 2.0
_CLOSE_SECONDS = 2.0
_BEGINNINGS_AT_MOST = 2
_AHEAD = 2
_NOTHING: tuple[str, Any] = ("nothing", None)
_ADDRESS = re.compile(r"(tcp|tls|ws|wss)://[^\s/]+:\d+")


def _is_news(record: logging.LogRecord) -> bool:
    """Return whether a client says more than that it was closed while it looked for a scheduler.

    It logs its own end as an error then, with a traceback; that a scheduler is lost is said by us.
    """
    return record.exc_info is None or record.exc_info[0] is not asyncio.CancelledError


logging.getLogger("distributed.client").addFilter(_is_news)


def check_scheduler(address: str, *, field: str) -> None:
    """Refuse what is no address of a Dask scheduler.

    Raises:
        InputError: naming the field.
    """
    if not _ADDRESS.fullmatch(address):
        raise InputError(
            "is not an address of a Dask scheduler",
            field=field,
            value=address,
            remedy="write it as `dask scheduler` prints it, such as tcp://10.0.0.5:8786",
        )


class DaskPool(SolverPool):
    """Runs functions on the workers of the scheduler at `address`, each in its own process.

    The scheduler is looked for by the first task. Workers have the same version of Meshwright.
    """

    def __init__(
        self, address: str, *, seconds_limit: float, modules: tuple[str, ...] = ()
    ) -> None:
        # a task's time runs from where a worker begins it, so the worker ends it
        super().__init__(process_count=_TASKS_AT_MOST, seconds_limit=float("inf"))
        self._address = address
        self._asked = (seconds_limit, modules, planner_version())
        self._client: Client | None = None
        self._processes: dict[str, DaskProcess] = {}
        self._connecting = threading.Lock()
        self._retry_at = 0.0

    def warm_up(self) -> None:
        """Look for the scheduler ahead of the first task, without waiting for it."""
        self._threads.submit(self._connected)

    def check(self) -> None:
        """Refuse a task while the scheduler is not there.

        Raises:
            DaskLostError: if it was lost, or was not found a moment ago.
        """
        client = self._client
        is_there = client is not None and client.status == "running"
        if not is_there and time.monotonic() < self._retry_at:
            raise self._lost()

    def place_count(self) -> int:
        """Return how many tasks the cluster's workers run side by side now.

        Raises:
            DaskLostError: if the scheduler is not there.
        """
        try:
            return sum(self._connected().nthreads().values())
        except OSError as error:
            raise self._lost() from error

    def in_order(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        """Yield `function(item)` of each, in their order, reading little further than is worked on.

        What was begun for who asks no further is ended.

        Raises:
            DaskLostError: if the scheduler is lost.
        """
        ahead = _AHEAD * self.place_count()
        waiting: deque[CallFuture[Any]] = deque()
        try:
            for item in items:
                waiting.append(self.submit(function, item))
                if len(waiting) > ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                self.kill(future)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more tasks; with `cancel_futures`, also end those that wait or run."""
        super().shutdown(wait, cancel_futures=cancel_futures)
        if self._client is not None:
            self._client.close(timeout=_CLOSE_SECONDS)

    def _take(self) -> TaskProcess:
        client = self._connected()
        process = DaskProcess(client, self._lost(), asked=self._asked)
        self._processes[process.key] = process
        process.when_closed = lambda: self._processes.pop(process.key, None)
        return process

    def _give_back(self, process: TaskProcess) -> None:
        process.close()

    def _connected(self) -> Client:
        """Return a client of the scheduler; one that lost it is left for a new one."""
        with self._connecting:
            if self._client is not None and self._client.status == "running":
                return self._client
            if time.monotonic() < self._retry_at:
                raise self._lost()
            try:
                if self._client is not None:
                    self._client.close(timeout=_CLOSE_SECONDS)
                self._client = Client(self._address, timeout=_CONNECT_SECONDS, set_as_default=False)
            except OSError as error:
                self._retry_at = time.monotonic() + _RETRY_SECONDS
                raise self._lost() from error
            self._client.subscribe_topic(_topic(self._client), self._hear)
            return self._client

    def _hear(self, event: tuple[float, Any]) -> None:
        """Pass on what a worker says of a task."""
        key, kind, content = event[1]
        process = self._processes.get(key)
        if process is not None:
            process.hear(kind, content)

    def _lost(self) -> DaskLostError:
        return DaskLostError(
            f"the Dask scheduler at {self._address} cannot be reached; start it, or correct the "
            "address, then send the request again"
        )


class DaskProcess:
    """A task of the cluster, as `SolverPool` sees a process."""

    pid = 0
    when_closed: Any = None

    def __init__(self, client: Client, lost: DaskLostError, *, asked: tuple[Any, ...]) -> None:
        self.key = f"meshwright-{uuid4().hex}"
        self._client = client
        self._lost = lost
        self._asked = asked
        self._future: Future | None = None
        self._begun_on: list[str] = []
        self._heard: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self._next: tuple[str, Any] = _NOTHING

    @property
    def has_begun(self) -> bool:
        """Return whether a worker is at it."""
        return bool(self._begun_on)

    def send(self, call: tuple[Any, ...], *, reports: bool) -> None:
        """Have a worker run the call."""
        self._future = self._client.submit(
            run_task,
            pickle.dumps(call),
            self._asked,
            _topic(self._client),
            reports=reports,
            key=self.key,
            pure=False,
        )
        self._future.add_done_callback(lambda _: self.hear("end", None))

    def hear(self, kind: str, content: Any) -> None:
        """Take what a worker or the client says of the task."""
        self._heard.put((kind, content))

    def wait(self, seconds: float) -> bool:
        """Return whether something can be received, waiting at most `seconds`."""
        if self._next is _NOTHING:
            try:
                kind, content = self._heard.get(timeout=seconds)
            except Empty:
                return False
            self._next = self._begun(content) if kind == "begun" else (kind, content)
        return self._next is not _NOTHING

    def receive(self) -> tuple[str, Any]:
        """Return the next message.

        Raises:
            EOFError: if the task was killed.
        """
        (kind, content), self._next = self._next, _NOTHING
        if kind == "killed":
            raise EOFError
        if kind == "end":
            return self._outcome()
        if kind == "progress":
            return kind, pickle.loads(content)  # noqa: S301 - a worker's, which runs our code
        return kind, content

    def kill(self) -> None:
        """Have the scheduler forget the task, whose worker then ends it."""
        self.hear("killed", None)
        if self._future is not None:
            self._future.release()

    def close(self) -> None:
        """Forget the task and its answer."""
        if self._future is not None:
            self._future.release()
        self.when_closed()

    def ending(self) -> str:
        """Return where it was, for a message."""
        return f"on the Dask workers {', '.join(self._begun_on) or '(none)'}"

    def _begun(self, worker: str) -> tuple[str, Any]:
        """Take that a worker begins it; too many did, and it ends them."""
        self._begun_on.append(worker)
        if len(self._begun_on) <= _BEGINNINGS_AT_MOST:
            return _NOTHING
        return "error", self._died()

    def _outcome(self) -> tuple[str, Any]:
        assert self._future is not None  # noqa: S101 - its callback put us here
        try:
            kind, content = self._future.result()
        except KilledWorker:
            return "error", self._died()
        except (CancelledError, OSError):
            return "error", self._lost
        return kind, content

    def _died(self) -> SolverDiedError:
        return SolverDiedError(
            f"the Dask workers that ran the solve were lost ({', '.join(self._begun_on)}); "
            "submit the request again"
        )


def _topic(client: Client) -> str:
    """Return where workers report to this client."""
    return f"meshwright-{client.id}"
