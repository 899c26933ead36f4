"""Every test here runs on SQLite and on PostgreSQL where it asks for a database."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import create_engine, text

from api.app import create_app
from api.db import Database
from api.migrate import upgrade
from api.settings import Settings
from tests.contract.api.postgres import running_server, server_programs
from tests.contract.api.solvers import a_planner


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    programs = server_programs()
    if programs is None:
        pytest.skip("no PostgreSQL server is installed")
    with running_server(programs) as url:
        yield url


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/meshwright.db"
        return
    server = request.getfixturevalue("postgres_server")
    name = f"test_{uuid.uuid4().hex}"
    _administer(server, f"CREATE DATABASE {name}")
    yield server.replace("/postgres?", f"/{name}?")
    _administer(server, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A database at the newest schema."""
    database = Database(database_url)
    upgrade(database)
    yield database
    database.close()


@pytest.fixture
def make_app(database: Database) -> Iterator[Callable[..., FastAPI]]:
    """Make applications on the database, with a planner that does as it is told."""
    made: list[FastAPI] = []

    def make(**changes: Any) -> FastAPI:
        url = database.engine.url.render_as_string(hide_password=False)
        planner = changes.pop("planner", None) or a_planner()
        settings = Settings(database_url=url, solver_processes=1, **changes)
        made.append(create_app(settings, planner=planner))
        return made[-1]

    yield make
    for app in made:
        app.state.database.close()


@pytest.fixture
def make_client(make_app: Callable[..., FastAPI]) -> Callable[..., TestClient]:
    """Make clients of applications with settings of their own; enter them to start."""
    return lambda **changes: TestClient(make_app(**changes))


@pytest.fixture
def client(make_app: Callable[..., FastAPI]) -> Iterator[TestClient]:
    """A client of such an application."""
    with TestClient(make_app()) as client:
        yield client


def _administer(server: str, statement: str) -> None:
    engine = create_engine(
        server.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT"
    )
    with engine.connect() as connection:
        connection.execute(text(statement))
    engine.dispose()
