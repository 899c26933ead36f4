"""Plans, operations with their events, and idempotency keys."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_SEQUENCE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_INSTANT = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "plans",
        sa.Column("sequence", _SEQUENCE, autoincrement=True, nullable=False),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("request_digest", sa.String(64), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("model_name", sa.String(200), nullable=False),
        sa.Column("cluster_name", sa.String(200), nullable=False),
        sa.Column("created_at", _INSTANT, nullable=False),
        sa.Column("etag", sa.String(64), nullable=False),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("sequence", name="pk_plans"),
        sa.UniqueConstraint("id", name="uq_plans_id"),
        sa.UniqueConstraint("request_digest", name="uq_plans_request_digest"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_plans_model_name", "plans", ["model_name", "sequence"])
    op.create_index("ix_plans_cluster_name", "plans", ["cluster_name", "sequence"])
    op.create_table(
        "operations",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("request_digest", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("lease_expires_at", _INSTANT, nullable=False),
        sa.Column("created_at", _INSTANT, nullable=False),
        sa.Column("finished_at", _INSTANT, nullable=True),
        sa.Column("plan_id", sa.String(64), nullable=True),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.Column("progress", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_operations"),
    )
    op.create_index("ix_operations_state", "operations", ["state", "lease_expires_at"])
    op.create_index(
        "uq_operations_running_request_digest",
        "operations",
        ["request_digest"],
        unique=True,
        sqlite_where=sa.text("state = 'running'"),
        postgresql_where=sa.text("state = 'running'"),
    )
    op.create_table(
        "operation_events",
        sa.Column("operation_id", sa.String(64), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["operation_id"],
            ["operations.id"],
            name="fk_operation_events_operation_id_operations",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("operation_id", "number", name="pk_operation_events"),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("key", sa.String(200), nullable=False),
        sa.Column("request_digest", sa.String(64), nullable=False),
        sa.Column("created_at", _INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_idempotency_keys"),
    )


def downgrade() -> None:
    op.drop_table("idempotency_keys")
    op.drop_table("operation_events")
    op.drop_table("operations")
    op.drop_table("plans")
