"""The database: one engine, and units of work over it.

A unit of work is one transaction; it commits when its block ends and is undone when an exception
leaves it. None is open while a solve runs or a client waits.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import Lock
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import QueuePool

from planner.errors import InputError

_READ_ONLY = "meshwright_read_only"
_SQLITE_BUSY_SECONDS = 30
_SQLITE_RETRY_SECONDS = 0.01
_CLOSING_SECONDS = 10
_CLOSING_LOOK_SECONDS = 0.01
_SQLITE_PRAGMAS = ("PRAGMA synchronous = NORMAL", "PRAGMA foreign_keys = ON")


class Database:
    """An engine with two kinds of transaction: for reading and for writing."""

    def __init__(self, url: str) -> None:
        self.engine = _engine(url)
        reading = self.engine.execution_options(**{_READ_ONLY: True})
        self._reading = sessionmaker(reading, expire_on_commit=False)
        self._writing = sessionmaker(self.engine, expire_on_commit=False)
        # SQLite has one writer at a time, and has others sleep and look again, for up to 100 ms:
        # threads of one process wait for each other here instead, and go on at once.
        embedded = self.engine.dialect.name == "sqlite"
        self._turn: AbstractContextManager[object] = Lock() if embedded else nullcontext()

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Open a unit of work that changes nothing."""
        with self._reading() as session:
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """Open a unit of work and commit it at the end."""
        with self._turn, self._writing.begin() as session:
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


def _engine(given: str) -> Engine:
    url = _url(given)
    if url.get_backend_name() != "sqlite":
        return create_engine(url, pool_pre_ping=True)
    waits = {} if "timeout" in url.query else {"timeout": _SQLITE_BUSY_SECONDS}
    engine = create_engine(url, connect_args={**waits, "check_same_thread": False})
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


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


def _prepare_sqlite(connection: Any, _record: object) -> None:
    """Leave transactions to us: the driver would open them too late for isolation."""
    connection.isolation_level = None
    _use_write_ahead_log(connection)
    for pragma in _SQLITE_PRAGMAS:
        connection.execute(pragma)


def _use_write_ahead_log(connection: Any) -> None:
    """Switch the file's journal, waiting as for any lock.

    SQLite answers this pragma with "locked" at once, whatever the connection's timeout, while
    another connection switches or writes.
    """
    deadline = time.monotonic() + _SQLITE_BUSY_SECONDS
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
    read_only = connection.get_execution_options().get(_READ_ONLY, False)
    connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")
