"""Every test here runs on SQLite and on PostgreSQL where it asks for a database.

In `make test-full`, that is; each run of `make test` has both for what depends on the database, and
one of them, always the same, for all else. Where no PostgreSQL is, all of it has SQLite.
"""

from __future__ import annotations

import logging
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
import structlog
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import Dialect, Engine, create_engine, event, text

from api import db, deps, logs
from api.caller import Scope
from api.db import Database
from api.migrate import head_revision, revision, upgrade
from api.settings import Settings
from api.tables import Base
from tests.applications import an_application
from tests.contract.api.postgres import running_server, server_programs
from tests.contract.api.solvers import a_planner
from tests.contract.api.solving import PATIENCE_SECONDS, PATIENT

# What databases do differently: locks, waits, text, types, and who else writes meanwhile.
_ON_BOTH = (
    "analyses_of_replicas",
    "faults",
    "hostile_text",
    "leases",
    "migrations",
    "plan_table",
    "pruning",
    "renewals",
    "secrets",
    "several_processes",
    "shared_limits",
    "silent_databases",
)
_TRIGGERS_OFF = text("SET LOCAL session_replication_role = replica")
_OTHERS_ENDED = text(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


@pytest.hookimpl(tryfirst=True)  # before what is marked is left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave one of the databases to `make test-full` where they do the same."""
    kinds = ("sqlite", "sqlite" if server_programs() is None else "postgres")
    chosen = {item.nodeid for item in items}
    for item in items:
        parameters = getattr(item, "callspec", None)
        kind = parameters and parameters.params.get("database_kind")
        if kind is None or item.path.stem.removeprefix("test_") in _ON_BOTH:
            continue
        other = "sqlite" if kind == "postgres" else "postgres"
        name = item.nodeid.replace(kind, "")
        runs_on_both = item.nodeid.replace(kind, other) in chosen
        if runs_on_both and kind != kinds[crc32(name.encode()) % 2]:
            item.add_marker(pytest.mark.full)


@pytest.fixture(scope="session", autouse=True)
def compiled_once() -> Iterator[None]:
    """Engines share the statements that they compiled: a test has one or two engines of its own."""
    dialects: dict[str, Dialect] = {}
    statements: dict[Any, Any] = {}
    made = db._engine

    def make(given: str, *, wait_seconds: float) -> tuple[Engine, float]:
        engine, seconds = made(given, wait_seconds=wait_seconds)
        own = engine.dialect
        engine.dialect = dialects.get(own.name, own)
        event.listen(engine, "connect", lambda *_: dialects.setdefault(own.name, own))
        engine.update_execution_options(compiled_cache=statements)
        return engine, seconds

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(db, "_engine", make)
        yield


@pytest.fixture(scope="module", autouse=True)
def patience() -> Iterator[None]:
    """The service of this process lets a request wait for its solve for as long as it asks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deps, "WAIT_SECONDS_LIMIT", PATIENCE_SECONDS)
        yield


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    programs = server_programs()
    if programs is None:
        pytest.skip("no PostgreSQL server is installed")
    with running_server(programs) as url:
        yield url


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database_kind(request: pytest.FixtureRequest) -> str:
    """Which database a test runs on."""
    kind: str = request.param
    return kind


@pytest.fixture
def database_url(
    database_kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[str]:
    """The URL of an empty database."""
    if database_kind == "sqlite":
        yield f"sqlite:///{tmp_path}/meshwright.db"
        return
    server = request.getfixturevalue("postgres_server")
    with _postgres_database(server) as url:
        yield url


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file at the newest schema, to be copied."""
    path = tmp_path_factory.mktemp("migrated") / "meshwright.db"
    _upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def emptied_database(postgres_server: str) -> Iterator[_Emptied]:
    """A PostgreSQL database at the newest schema, which each test leaves as it found it."""
    with _postgres_database(postgres_server) as url:
        _upgrade(url)
        yield _Emptied(url)


@pytest.fixture
def database(
    database_kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Database]:
    """A database at the newest schema."""
    if database_kind == "sqlite":
        path = tmp_path / "meshwright.db"
        shutil.copy(request.getfixturevalue("migrated_file"), path)
        yield from _opened(f"sqlite:///{path}")
        return
    emptied: _Emptied = request.getfixturevalue("emptied_database")
    yield from _opened(emptied.url)
    emptied.empty()


@pytest.fixture
def make_app(database: Database) -> Iterator[Callable[..., FastAPI]]:
    """Make applications on the database, with a planner that does as it is told.

    Who asks without a key may do everything, unless a test says otherwise.
    """
    made: list[FastAPI] = []

    def make(**changes: Any) -> FastAPI:
        url = database.engine.url.render_as_string(hide_password=False)
        planner = changes.pop("planner", None) or a_planner()
        fields = {"allowed_hosts": ("testserver",), "anonymous_scopes": tuple(Scope), **changes}
        settings = Settings(database_url=url, solver_processes=1, **fields)
        made.append(an_application(settings, planner=planner))
        return made[-1]

    yield make
    for app in made:
        app.state.database.close()


@pytest.fixture
def make_client(make_app: Callable[..., FastAPI]) -> Callable[..., TestClient]:
    """Make clients of applications with settings of their own; enter them to start."""
    return lambda **changes: TestClient(make_app(**changes), headers=PATIENT)


@pytest.fixture
def client(
    make_app: Callable[..., FastAPI], request: pytest.FixtureRequest
) -> Iterator[TestClient]:
    """A client of such an application, made as the module's APPLICATION says."""
    changes: dict[str, Any] = getattr(request.module, "APPLICATION", {})
    with TestClient(make_app(**changes), headers=PATIENT) as client:
        yield client


@pytest.fixture
def json_logs(
    capsys: pytest.CaptureFixture[str],
) -> Iterator[pytest.CaptureFixture[str]]:
    """What is written as a service writes logs; what was configured before comes back."""
    before, root = structlog.get_config(), logging.getLogger()
    handlers, level = root.handlers, root.level
    logs.configure("json")
    yield capsys
    structlog.configure(**before)
    root.handlers, root.level = handlers, level


def _opened(url: str) -> Iterator[Database]:
    database = Database(url)
    yield database
    database.close()


def _upgrade(url: str) -> None:
    for database in _opened(url):
        upgrade(database)


class _Emptied:
    """A database that is emptied: to copy one takes the server most of a second."""

    def __init__(self, url: str) -> None:
        self.url = url
        tables = Base.metadata.sorted_tables
        self._truncation = text(
            f"TRUNCATE {', '.join(table.name for table in tables)} RESTART IDENTITY"
        )
        for database in _opened(url):
            with database.reading() as session:
                rows = [(table, session.execute(table.select()).mappings()) for table in tables]
                self._first = [(table, list(map(dict, found))) for table, found in rows]

    def empty(self) -> None:
        """Leave what migrations put there alone, at the newest schema, and no other connection."""
        for database in _opened(self.url):
            if revision(database) != head_revision():
                upgrade(database)
            with database.writing() as session:
                session.execute(_OTHERS_ENDED)
                session.execute(_TRIGGERS_OFF)  # one of them keeps the audit log
                session.execute(self._truncation)
                for table, rows in self._first:
                    if rows:
                        session.execute(table.insert(), rows)


@contextmanager
def _postgres_database(server: str) -> Iterator[str]:
    name = f"test_{uuid.uuid4().hex}"
    _administer(server, f"CREATE DATABASE {name}")
    yield server.replace("/postgres?", f"/{name}?")
    _administer(server, f"DROP DATABASE {name} WITH (FORCE)")


def _administer(server: str, statement: str) -> None:
    engine = create_engine(
        server.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT"
    )
    with engine.connect() as connection:
        connection.execute(text(statement))
    engine.dispose()
