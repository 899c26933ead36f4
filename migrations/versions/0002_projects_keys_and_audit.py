"""Projects, API keys, the audit log; what was stored before belongs to the project "default"."""

from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_SEQUENCE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_INSTANT = sa.DateTime(timezone=True)
_RUNNING = {
    "sqlite_where": sa.text("state = 'running'"),
    "postgresql_where": sa.text("state = 'running'"),
}


def upgrade() -> None:
    _create_tables()
    _protect_audit_events()
    _give_to_default_project("plans")
    _give_to_default_project("operations")
    _give_to_default_project("idempotency_keys")
    op.drop_index("ix_plans_model_name", "plans")
    op.drop_index("ix_plans_cluster_name", "plans")
    with op.batch_alter_table("plans", table_kwargs={"sqlite_autoincrement": True}) as plans:
        plans.alter_column("project_id", existing_type=sa.String(64), nullable=False)
        plans.create_foreign_key("fk_plans_project_id_projects", "projects", ["project_id"], ["id"])
        plans.drop_constraint("uq_plans_id", type_="unique")
        plans.drop_constraint("uq_plans_request_digest", type_="unique")
        plans.create_unique_constraint("uq_plans_project_id_id", ["project_id", "id"])
        plans.create_unique_constraint(
            "uq_plans_project_id_request_digest", ["project_id", "request_digest"]
        )
    op.create_index("ix_plans_project_id", "plans", ["project_id", "sequence"])
    op.create_index("ix_plans_model_name", "plans", ["project_id", "model_name", "sequence"])
    op.create_index("ix_plans_cluster_name", "plans", ["project_id", "cluster_name", "sequence"])
    _upgrade_operations()
    with op.batch_alter_table("idempotency_keys") as keys:
        keys.alter_column("project_id", existing_type=sa.String(64), nullable=False)
        keys.drop_constraint("pk_idempotency_keys", type_="primary")
        keys.create_primary_key("pk_idempotency_keys", ["project_id", "key"])
        keys.create_foreign_key(
            "fk_idempotency_keys_project_id_projects", "projects", ["project_id"], ["id"]
        )
    op.create_index("ix_idempotency_keys_created_at", "idempotency_keys", ["created_at"])


def downgrade() -> None:
    """Keep the oldest of what several projects have alike: it could not be told apart."""
    _forget_all_but_the_oldest()
    op.drop_index("ix_idempotency_keys_created_at", "idempotency_keys")
    with op.batch_alter_table("idempotency_keys") as keys:
        keys.drop_constraint("fk_idempotency_keys_project_id_projects", type_="foreignkey")
        keys.drop_constraint("pk_idempotency_keys", type_="primary")
        keys.create_primary_key("pk_idempotency_keys", ["key"])
        keys.drop_column("project_id")
    op.drop_index("ix_operations_finished_at", "operations")
    op.drop_index("uq_operations_running_request_digest", "operations")
    _drop_project("operations")
    op.create_index(
        "uq_operations_running_request_digest",
        "operations",
        ["request_digest"],
        unique=True,
        **_RUNNING,
    )
    for name in ("ix_plans_project_id", "ix_plans_model_name", "ix_plans_cluster_name"):
        op.drop_index(name, "plans")
    with op.batch_alter_table("plans", table_kwargs={"sqlite_autoincrement": True}) as plans:
        plans.drop_constraint("uq_plans_project_id_id", type_="unique")
        plans.drop_constraint("uq_plans_project_id_request_digest", type_="unique")
        plans.create_unique_constraint("uq_plans_id", ["id"])
        plans.create_unique_constraint("uq_plans_request_digest", ["request_digest"])
        plans.drop_constraint("fk_plans_project_id_projects", type_="foreignkey")
        plans.drop_column("project_id")
    op.create_index("ix_plans_model_name", "plans", ["model_name", "sequence"])
    op.create_index("ix_plans_cluster_name", "plans", ["cluster_name", "sequence"])
    _drop_tables()


def _create_tables() -> None:
    projects = op.create_table(
        "projects",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("created_at", _INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_projects"),
    )
    op.bulk_insert(projects, [{"id": "default", "created_at": datetime.now(UTC)}])
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("project_id", sa.String(64), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("prefix", sa.String(32), nullable=False),
        sa.Column("secret_hash", sa.String(64), nullable=False),
        sa.Column("scopes", sa.String(100), nullable=False),
        sa.Column("created_at", _INSTANT, nullable=False),
        sa.Column("expires_at", _INSTANT, nullable=True),
        sa.Column("revoked_at", _INSTANT, nullable=True),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name="fk_api_keys_project_id_projects"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
        sa.UniqueConstraint("prefix", name="uq_api_keys_prefix"),
    )
    op.create_index("ix_api_keys_project_id", "api_keys", ["project_id", "created_at"])
    op.create_table(
        "service_secrets",
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("value", sa.String(128), nullable=False),
        sa.Column("created_at", _INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_service_secrets"),
    )
    _create_audit_events()


def _create_audit_events() -> None:
    op.create_table(
        "audit_events",
        sa.Column("sequence", _SEQUENCE, autoincrement=True, nullable=False),
        sa.Column("at", _INSTANT, nullable=False),
        sa.Column("project_id", sa.String(64), nullable=False),
        sa.Column("actor", sa.String(200), nullable=False),
        sa.Column("key_id", sa.String(64), nullable=True),
        sa.Column("action", sa.String(64), nullable=False),
        sa.Column("subject", sa.String(200), nullable=False),
        sa.Column("request_id", sa.String(64), nullable=True),
        sa.Column("details", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("sequence", name="pk_audit_events"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_audit_events_project_id", "audit_events", ["project_id", "sequence"])


def _protect_audit_events() -> None:
    """Have the database itself refuse to change what was written."""
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            "CREATE FUNCTION refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'the audit log is append-only'; END $$"
        )
        op.execute(
            "CREATE TRIGGER audit_events_append_only "
            "BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_events "
            "FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit_change()"
        )
        return
    for change in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER audit_events_no_{change.lower()} BEFORE {change} ON audit_events "
            "BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END"
        )


def _give_to_default_project(table: str) -> None:
    op.add_column(table, sa.Column("project_id", sa.String(64), nullable=True))
    op.execute(sa.update(sa.table(table, sa.column("project_id"))).values(project_id="default"))


def _upgrade_operations() -> None:
    op.drop_index("uq_operations_running_request_digest", "operations")
    op.drop_index("ix_operations_state", "operations")
    with op.batch_alter_table("operations") as operations:
        operations.alter_column("project_id", existing_type=sa.String(64), nullable=False)
        operations.create_foreign_key(
            "fk_operations_project_id_projects", "projects", ["project_id"], ["id"]
        )
    op.create_index("ix_operations_state", "operations", ["state", "lease_expires_at"])
    op.create_index("ix_operations_finished_at", "operations", ["finished_at"])
    op.create_index(
        "uq_operations_running_request_digest",
        "operations",
        ["project_id", "request_digest"],
        unique=True,
        **_RUNNING,
    )


def _drop_project(table: str) -> None:
    with op.batch_alter_table(table) as changed:
        changed.drop_constraint(f"fk_{table}_project_id_projects", type_="foreignkey")
        changed.drop_column("project_id")


def _forget_all_but_the_oldest() -> None:
    op.execute(
        "DELETE FROM plans WHERE sequence NOT IN "
        "(SELECT MIN(sequence) FROM plans GROUP BY request_digest)"
    )
    op.execute(
        "DELETE FROM plans WHERE sequence NOT IN (SELECT MIN(sequence) FROM plans GROUP BY id)"
    )
    op.execute(
        "DELETE FROM operations WHERE state = 'running' AND id NOT IN "
        "(SELECT MIN(id) FROM operations WHERE state = 'running' GROUP BY request_digest)"
    )
    op.execute(
        "DELETE FROM idempotency_keys WHERE EXISTS (SELECT 1 FROM idempotency_keys AS other "
        "WHERE other.key = idempotency_keys.key AND other.project_id < idempotency_keys.project_id)"
    )


def _drop_tables() -> None:
    op.drop_table("audit_events")
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION refuse_audit_change()")
    op.drop_table("service_secrets")
    op.drop_table("api_keys")
    op.drop_table("projects")
