"""Migrations lead to the tables that the code declares, and back."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import inspect, text

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


def test_what_was_stored_before_projects_is_kept_both_ways(database):
    """Down to the first schema with data of two projects in it, and up again."""
    downgrade(database, "0001")
    stored = {
        "plans": "INSERT INTO plans (id, request_digest, status, model_name, cluster_name, "
        "created_at, etag, summary, document) VALUES ('p', 'd', 'planned', 'm', 'c', "
        "'2026-01-01 00:00:00', 'e', '{}', '{}')",
        "operations": "INSERT INTO operations (id, request_digest, state, lease_expires_at, "
        "created_at) VALUES ('o', 'd', 'running', '2026-01-01 00:00:00', '2026-01-01 00:00:00')",
        "operation_events": "INSERT INTO operation_events (operation_id, number, kind, data) "
        "VALUES ('o', 1, 'state', '{}')",
        "idempotency_keys": "INSERT INTO idempotency_keys (key, request_digest, created_at) "
        "VALUES ('k', 'd', '2026-01-01 00:00:00')",
    }
    _execute(database, *stored.values())

    upgrade(database)

    for table in ("plans", "operations", "idempotency_keys"):
        assert _rows(database, f"SELECT project_id FROM {table}") == [("default",)]  # noqa: S608
    assert _rows(database, "SELECT operation_id, number FROM operation_events") == [("o", 1)]
    _execute(
        database,
        "INSERT INTO projects (id, created_at) VALUES ('team-b', '2026-01-01 00:00:00')",
        "INSERT INTO plans (project_id, id, request_digest, status, model_name, cluster_name, "
        "created_at, etag, summary, document) SELECT 'team-b', id, request_digest, status, "
        "model_name, cluster_name, created_at, etag, summary, document FROM plans",
        "INSERT INTO idempotency_keys (project_id, key, request_digest, created_at) "
        "SELECT 'team-b', key, request_digest, created_at FROM idempotency_keys",
    )

    downgrade(database, "0001")

    for table in stored:
        assert len(_rows(database, f"SELECT * FROM {table}")) == 1, table  # noqa: S608
    upgrade(database)
    assert _rows(database, "SELECT project_id, id FROM plans") == [("default", "p")]


def test_stored_plans_can_be_sorted_and_searched_after_the_upgrade_and_are_kept_back(database):
    """Figures and words come from summaries; an infeasible answer has none; all else stays."""
    downgrade(database, "0004")
    plan = {"id": "p-1", "model": "Gpt\0", "cluster": "C", "strategy": "TP 2", "step_seconds": 1.5}
    infeasible = {"id": "p-2", "model": "Gpt", "cluster": "C", "strategy": None}
    add = text(
        "INSERT INTO plans (project_id, id, request_digest, status, model_name, cluster_name, "
        "created_at, etag, summary, document) VALUES ('default', :id, :id, 'planned', 'm', 'c', "
        "'2026-01-01 00:00:00', 'e', :summary, '{}')"
    )
    with database.engine.begin() as connection:
        for summary in (plan, infeasible):
            connection.execute(add, {"id": summary["id"], "summary": json.dumps(summary)})
    before = _rows(database, "SELECT * FROM plans ORDER BY sequence")

    upgrade(database)

    found = "SELECT id, step_seconds, peak_memory_bytes, searched_text FROM plans ORDER BY sequence"
    assert _rows(database, found) == [
        ("p-1", 1.5, None, "gpt\N{REPLACEMENT CHARACTER}\nc\ntp 2\np-1"),
        ("p-2", None, None, "gpt\nc\np-2"),
    ]
    downgrade(database, "0004")
    assert _rows(database, "SELECT * FROM plans ORDER BY sequence") == before
    upgrade(database)
    assert len(_rows(database, found)) == 2


def test_stored_plans_are_sorted_by_the_names_that_they_had_before_the_upgrade(database):
    downgrade(database, "0008")
    add = text(
        "INSERT INTO plans (project_id, id, request_digest, status, model_name, cluster_name, "
        "created_at, etag, summary, document) VALUES ('default', :id, :id, 'planned', 'm', 'c', "
        "'2026-01-01 00:00:00', 'e', :summary, '{}')"
    )
    tag = text("INSERT INTO plan_tags (project_id, plan_id, tag) VALUES ('default', 'p-1', 't')")
    named = {"id": "p-1", "model": "llama", "name": "Nightly"}
    with database.engine.begin() as connection:
        for summary in (named, {"id": "p-2", "model": "Gpt\0"}):
            connection.execute(add, {"id": summary["id"], "summary": json.dumps(summary)})
        connection.execute(tag)

    upgrade(database)

    found = _rows(database, "SELECT id, sorted_name FROM plans ORDER BY sequence")
    assert found == [("p-1", "nightly"), ("p-2", "gpt\N{REPLACEMENT CHARACTER}")]
    assert _rows(database, "SELECT tag FROM plan_tags") == [("t",)]
    downgrade(database, "0008")
    assert _rows(database, "SELECT tag FROM plan_tags") == [("t",)]
    upgrade(database)


def test_a_service_of_the_version_before_can_still_store_plans(database):
    """While replicas are replaced one by one, a plan without the new columns is sorted last."""
    _execute(
        database,
        "INSERT INTO plans (project_id, id, request_digest, status, model_name, cluster_name, "
        "created_at, etag, summary, document) VALUES ('default', 'p', 'd', 'planned', 'm', 'c', "
        "'2026-01-01 00:00:00', 'e', '{}', '{}')",
    )

    assert _rows(database, "SELECT searched_text, step_seconds FROM plans") == [("", None)]


def _execute(database: Database, *statements: str) -> None:
    with database.engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))


def _rows(database: Database, statement: str) -> list[tuple[object, ...]]:
    with database.engine.connect() as connection:
        return [tuple(row) for row in connection.execute(text(statement))]
