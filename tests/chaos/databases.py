"""Databases: SQLite and PostgreSQL, which can be away for a while."""

from __future__ import annotations

import random
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import text

from api.db import Database
from tests.contract.api.postgres import restarted, running_server, server_programs, silent

Kind = Literal["sqlite", "postgres"]
# What was committed survives the death of the server, as by default; that of the machine is not
# played, so nothing is forced to the disk.
_SETTINGS = "-c fsync=off -c full_page_writes=off"


class ChaosDatabase(ABC):
    """A database of a fleet's own. `can_refuse` says whether it answers at once while away."""

    url: str

    def query(self, sql: str, **values: Any) -> list[Any]:
        """Return rows, read beside the service."""
        database = Database(self.url)
        try:
            with database.reading() as session:
                return [tuple(row) for row in session.execute(text(sql), values)]
        finally:
            database.close()

    @abstractmethod
    @contextmanager
    def away(self, chance: random.Random) -> Iterator[bool]:
        """Have nothing written inside the block; say whether who asks hears so at once."""

    @abstractmethod
    def close(self) -> None:
        """End it."""


class SqliteDatabase(ChaosDatabase):
    """A file; another process that holds its lock keeps the service out."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "meshwright.db"
        self.url = f"sqlite:///{self._path}?timeout=1"

    @contextmanager
    def away(self, chance: random.Random) -> Iterator[bool]:
        """Hold the write lock."""
        del chance
        connection = sqlite3.connect(self._path, timeout=60, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            yield True
        finally:
            connection.close()

    def close(self) -> None:
        """Leave the file."""


class PostgresDatabase(ChaosDatabase):
    """A server of its own, which can be stopped, killed, and made to hang."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        programs = server_programs()
        assert programs is not None, "no PostgreSQL server is installed"
        self._programs = programs
        self._environment = environment
        self._stack = ExitStack()
        server = running_server(programs, settings=_SETTINGS, environment=environment)
        self.url = self._stack.enter_context(server)

    @contextmanager
    def away(self, chance: random.Random) -> Iterator[bool]:
        """Stop it in an orderly way or at once, or have it hang."""
        how = chance.choice(["fast", "immediate", "hangs"])
        if how == "hangs":
            with silent(self.url):
                yield False
            return
        with restarted(
            self._programs, self.url, mode=how, settings=_SETTINGS, environment=self._environment
        ):
            yield True

    def close(self) -> None:
        """Stop it and remove its files."""
        self._stack.close()
