"""Migrations lead to the tables that the code declares, and back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import inspect

from api.db import Database
from api.migrate import downgrade, head_revision, revision, upgrade
from api.tables import Base


def test_migrated_tables_are_the_declared_ones(database):
    """No drift: autogenerate would write an empty migration."""
    with database.engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "target_metadata": Base.metadata}
        )
        assert compare_metadata(context, Base.metadata) == []


def test_upgrading_twice_changes_nothing(database):
    upgrade(database)

    assert revision(database) == head_revision()


def test_downgrading_leaves_nothing_and_can_be_undone(database):
    downgrade(database, "base")

    assert inspect(database.engine).get_table_names() == ["alembic_version"]
    upgrade(database)
    assert revision(database) == head_revision()


def test_services_that_start_together_migrate_once(database_url):
    def migrated(_):
        database = Database(database_url)
        upgrade(database)
        found = revision(database)
        database.close()
        return found

    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(migrated, range(4))) == {head_revision()}
