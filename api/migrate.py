"""Migrations: the database brought to the schema that this version of the service expects."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from api.db import Database
from api.errors import NotReadyError
from api.settings import read_settings

SCRIPTS = Path(__file__).resolve().parent.parent / "migrations"
_LOCK_NUMBER = 0x6D657368
# A large table takes its time, and processes that start together wait for the first.
_WAIT_SECONDS = 3600.0


def main() -> int:
    """Bring the database of the environment to the newest schema; `meshwright db upgrade`."""
    before, after = upgrade_url(read_settings().database_url)
    shown = "is at" if before == after else f"went from {before or 'nothing'} to"
    print(f"database {shown} revision {after}")  # noqa: T201 - a command's output
    return 0


def upgrade_url(database_url: str) -> tuple[str | None, str | None]:
    """Bring the database there to the newest schema; return its revisions before and after.

    Raises:
        NotReadyError: if it cannot be used.
    """
    database = Database(database_url, wait_seconds=_WAIT_SECONDS)
    try:
        before = revision(database)
        upgrade(database)
        return before, revision(database)
    except DBAPIError as error:
        raise NotReadyError(f"the database cannot be used: {error.orig}") from None
    finally:
        database.close()


def upgrade(database: Database, to: str = "head") -> None:
    """Apply the migrations up to `to`; processes that start together take turns."""
    with _migrating(database) as connection:
        command.upgrade(configuration(connection), to)


def downgrade(database: Database, to: str) -> None:
    """Undo the migrations down to `to`."""
    with _migrating(database) as connection:
        command.downgrade(configuration(connection), to)


def revision(database: Database) -> str | None:
    """Return the revision that the database is at, `None` before the first migration."""
    with database.reading() as session:
        return MigrationContext.configure(session.connection()).get_current_revision()


@cache
def head_revision() -> str | None:
    """Return the newest revision."""
    return ScriptDirectory(str(SCRIPTS)).get_current_head()


def configuration(connection: Connection) -> Config:
    """Return Alembic's configuration; there is no alembic.ini, so that it works when installed."""
    config = Config()
    config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


@contextmanager
def _migrating(database: Database) -> Iterator[Connection]:
    """Open one transaction for all migrations.

    SQLite changes a table by making it anew. Foreign keys must not act meanwhile (dropping the old
    table would delete what refers to it), and can be switched only outside a transaction.
    """
    with database.engine.connect() as connection:
        embedded = connection.dialect.name == "sqlite"
        if embedded:
            _switch_foreign_keys(connection, "OFF")
        try:
            with connection.begin():
                _take_turn(connection)
                yield connection
                if embedded:
                    _check_foreign_keys(connection)
        finally:
            if embedded:
                _switch_foreign_keys(connection, "ON")


def _switch_foreign_keys(connection: Connection, state: str) -> None:
    driver: Any = connection.connection.dbapi_connection
    driver.execute(f"PRAGMA foreign_keys = {state}")


def _check_foreign_keys(connection: Connection) -> None:
    broken = connection.exec_driver_sql("PRAGMA foreign_key_check").first()
    if broken is not None:
        raise NotReadyError(f"the migration would leave {broken[0]} without what it refers to")


def _take_turn(connection: Connection) -> None:
    """Wait for other processes' migrations; SQLite's write lock does that by itself."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK_NUMBER})
