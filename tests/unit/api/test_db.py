"""Units of work commit whole or not at all; addresses of databases are checked."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from api.db import Database
from planner.errors import InputError


@pytest.fixture
def database(tmp_path):
    database = Database(f"sqlite:///{tmp_path}/work.db")
    with database.writing() as session:
        session.execute(text("CREATE TABLE facts (fact TEXT)"))
    yield database
    database.close()


def facts(database) -> list[str]:
    with database.reading() as session:
        return list(session.scalars(text("SELECT fact FROM facts")))


def test_a_unit_of_work_is_kept_when_its_block_ends(database):
    with database.writing() as session:
        session.execute(text("INSERT INTO facts VALUES ('kept')"))

    assert facts(database) == ["kept"]


def test_a_unit_of_work_is_undone_when_an_exception_leaves_it(database):
    def interrupted_work():
        with database.writing() as session:
            session.execute(text("INSERT INTO facts VALUES ('lost')"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        interrupted_work()

    assert facts(database) == []


def test_a_reader_sees_nothing_of_an_unfinished_unit_of_work(database):
    """Write-ahead logging: readers neither wait for the writer nor see its half of the work."""
    with database.writing() as session:
        session.execute(text("INSERT INTO facts VALUES ('unfinished')"))
        assert facts(database) == []


@pytest.mark.parametrize(
    "url",
    [
        "",
        "nonsense",
        "mysql://host/name",
        "/path/file.db",
        "oracle://x",
        "postgresql://host:x/name",
    ],
)
def test_a_database_that_is_not_known_is_refused(url):
    with pytest.raises(InputError) as caught:
        Database(url)

    assert caught.value.field == "MESHWRIGHT_DATABASE_URL"
    assert "sqlite:///" in caught.value.remedy


def test_a_password_is_not_repeated_in_the_refusal():
    with pytest.raises(InputError) as caught:
        Database("mysql://user:hunter2@host/name")

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_every_spelling_of_postgresql_uses_the_driver_that_we_ship(scheme):
    database = Database(f"{scheme}://user@host/name")

    assert database.engine.url.drivername == "postgresql+psycopg"
    database.close()
