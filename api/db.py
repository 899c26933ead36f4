"""The database: one engine, and units of work over it.

A unit of work is one transaction; it commits when its block ends and is undone when an exception
leaves it. None is open while a solve runs or a client waits.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import QueuePool

from api.write_queue import WriteQueue
from planner.errors import InputError

# What a database raises that is away, locked or full of work: later it may do.
UNAVAILABLE = (DBAPIError, PoolTimeoutError)
# Of the threads for requests, so many may read while all the writers that may wait do.
READER_THREADS = 36
WRITERS_LIMIT = 64
# How long one piece of work waits for a turn, a lock or an answer before it is told there is none.
WAIT_SECONDS = 10.0
# What nobody waits for, such as the outcome of a solve, is worth a longer wait.
_RECORDING_SECONDS = 60.0
_RACES_LIMIT = 5
_READ_ONLY = "meshwright_read_only"
_ONE_STATEMENT = "meshwright_one_statement"
_BUSY_SECONDS = "meshwright_busy_seconds"
_SQLITE_RETRY_SECONDS = 0.01
_CLOSING_SECONDS = 10
_CLOSING_LOOK_SECONDS = 0.01
_SQLITE_PRAGMAS = ("PRAGMA synchronous = NORMAL", "PRAGMA foreign_keys = ON")

Written = TypeVar("Written")


def reason_of(error: Exception) -> str:
    """Return what a database said, without the statement that it was told."""
    return str(getattr(error, "orig", None) or error)


def settled(write: Callable[[], Written]) -> Written:
    """Return what `write` returns, done again where others wrote the same at the same time."""
    for _ in range(_RACES_LIMIT - 1):
        with suppress(IntegrityError):
            return write()
    return write()


class Database:
    """An engine with two kinds of transaction: for reading and for writing."""

    def __init__(self, url: str, *, wait_seconds: float = WAIT_SECONDS) -> None:
        self.engine, self._wait_seconds = _engine(url, wait_seconds=wait_seconds)
        self._reader = self.engine.execution_options(**{_READ_ONLY: True})
        self._looker = self.engine.execution_options(**{_ONE_STATEMENT: True})
        self._reading = sessionmaker(self._reader, expire_on_commit=False)
        self._writing = sessionmaker(self.engine, expire_on_commit=False)
        embedded = self.engine.dialect.name == "sqlite"
        self._queue = WriteQueue(one_at_a_time=embedded, length_limit=WRITERS_LIMIT)

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Open a unit of work that changes nothing."""
        with self._reading() as session:
            yield session

    @contextmanager
    def looking_up(self) -> Iterator[Connection]:
        """Open a connection for one statement that reads rows: what is asked so often as to matter.

        A transaction for it would cost as much again.
        """
        with self._looker.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """Open a unit of work and commit it at the end.

        Raises:
            PoolTimeoutError: if too many wait to write, or the turn to does not come in time.
            DBAPIError: if the database is locked for so long, or cannot do it.
        """
        with self._queue.place(), self._written(self._wait_seconds) as session:
            yield session

    @contextmanager
    def recording(self) -> Iterator[Session]:
        """Open a unit of work that no request waits for, which has more time for its turn."""
        with self._written(max(self._wait_seconds, _RECORDING_SECONDS)) as session:
            yield session

    @contextmanager
    def _written(self, wait_seconds: float) -> Iterator[Session]:
        with self._queue.turn(wait_seconds) as seconds_left, self._writing.begin() as session:
            session.connection(execution_options={_BUSY_SECONDS: seconds_left})
            yield session

    def close(self) -> None:
        """Give all connections back, those last that threads still work with.

        A thread outlives the task that waits for it: what it holds would else be left open.
        """
        deadline = time.monotonic() + _CLOSING_SECONDS
        pool = self.engine.pool
        while isinstance(pool, QueuePool) and pool.checkedout() and time.monotonic() < deadline:
            time.sleep(_CLOSING_LOOK_SECONDS)
        self.engine.dispose()


def _engine(given: str, *, wait_seconds: float) -> tuple[Engine, float]:
    """Return the engine, and how long it waits: a file's URL may say so itself."""
    url = _url(given)
    if url.get_backend_name() != "sqlite":
        from api.postgres import postgres_engine  # noqa: PLC0415 - 9 MiB that SQLite does without

        return postgres_engine(url, wait_seconds=wait_seconds), wait_seconds
    stated = url.query.get("timeout")
    seconds = wait_seconds if stated is None else _stated_seconds(stated)
    engine = create_engine(url, connect_args={"timeout": seconds, "check_same_thread": False})
    event.listen(engine, "connect", partial(_prepare_sqlite, wait_seconds=seconds))
    event.listen(engine, "begin", _begin_sqlite)
    return engine, seconds


def _stated_seconds(text: object) -> float:
    try:
        return max(0.0, float(str(text)))
    except ValueError:
        raise InputError(
            "has a timeout that is no number of seconds",
            field="MESHWRIGHT_DATABASE_URL",
            value=str(text),
            remedy="write sqlite:///file.db?timeout=10, or leave the timeout out",
        ) from None


def _url(given: str) -> URL:
    try:
        url = make_url(given)
        backend = url.get_backend_name()
    except (ArgumentError, ValueError):  # the latter of a port that is no number
        backend = None
    if backend == "sqlite":
        return url
    if backend in {"postgres", "postgresql"}:
        return url.set(drivername="postgresql+psycopg")
    raise InputError(
        "is not the URL of a database that the service knows",
        field="MESHWRIGHT_DATABASE_URL",
        value=None if backend is None else backend,
        remedy="write sqlite:///file.db or postgresql://user:password@host/name",
    )


def _prepare_sqlite(connection: Any, _record: object, *, wait_seconds: float) -> None:
    """Leave transactions to us: the driver would open them too late for isolation."""
    connection.isolation_level = None
    _use_write_ahead_log(connection, wait_seconds=wait_seconds)
    for pragma in _SQLITE_PRAGMAS:
        connection.execute(pragma)


def _use_write_ahead_log(connection: Any, *, wait_seconds: float) -> None:
    """Switch the file's journal, waiting as for any lock.

    SQLite answers this pragma with "locked" at once, whatever the connection's timeout, while
    another connection switches or writes.
    """
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_SQLITE_RETRY_SECONDS)
        else:
            return


def _begin_sqlite(connection: Connection) -> None:
    """Take the write lock at once where a write will follow, so that no upgrade can fail."""
    options = connection.get_execution_options()
    if options.get(_ONE_STATEMENT, False):
        return
    if options.get(_READ_ONLY, False):
        connection.exec_driver_sql("BEGIN")
        return
    if _BUSY_SECONDS in options:
        milliseconds = int(1000 * options[_BUSY_SECONDS])
        connection.exec_driver_sql(f"PRAGMA busy_timeout = {milliseconds}")
    connection.exec_driver_sql("BEGIN IMMEDIATE")
