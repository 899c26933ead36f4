"""Agents with their enrolment tokens, runs with plans and history, leases with what they wrote."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_SEQUENCE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_INSTANT = sa.DateTime(timezone=True)
_LIVE = {
    "sqlite_where": sa.text("ended_at IS NULL"),
    "postgresql_where": sa.text("ended_at IS NULL"),
}


def upgrade() -> None:
    _create_agents()
    _create_runs()
    _create_leases()


def downgrade() -> None:
    for table in (
        "lease_metrics",
        "lease_logs",
        "leases",
        "run_events",
        "run_plans",
        "runs",
        "agents",
        "enrolment_tokens",
    ):
        op.drop_table(table)


def _create_agents() -> None:
    op.create_table(
        "enrolment_tokens",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("project_id", sa.String(64), nullable=False),
        sa.Column("token_hash", sa.String(64), nullable=False),
        sa.Column("note", sa.String(200), nullable=False),
        sa.Column("created_at", _INSTANT, nullable=False),
        sa.Column("expires_at", _INSTANT, nullable=False),
        sa.Column("used_at", _INSTANT, nullable=True),
        _reference("enrolment_tokens", "project_id", "projects"),
        sa.PrimaryKeyConstraint("id", name="pk_enrolment_tokens"),
        sa.UniqueConstraint("token_hash", name="uq_enrolment_tokens_token_hash"),
    )
    op.create_table(
        "agents",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("project_id", sa.String(64), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("token_hash", sa.String(64), nullable=False),
        sa.Column("report", sa.Text(), nullable=False),
        sa.Column("enrolled_at", _INSTANT, nullable=False),
        sa.Column("last_seen_at", _INSTANT, nullable=False),
        sa.Column("available_until", _INSTANT, nullable=True),
        sa.Column("revoked_at", _INSTANT, nullable=True),
        _reference("agents", "project_id", "projects"),
        sa.PrimaryKeyConstraint("id", name="pk_agents"),
        sa.UniqueConstraint("token_hash", name="uq_agents_token_hash"),
    )
    op.create_index("ix_agents_project_id", "agents", ["project_id", "available_until"])


def _create_runs() -> None:
    op.create_table(
        "runs",
        sa.Column("sequence", _SEQUENCE, autoincrement=True, nullable=False),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("project_id", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("plan_id", sa.String(64), nullable=False),
        sa.Column("first_plan_id", sa.String(64), nullable=False),
        sa.Column("command", sa.String(100), nullable=False),
        sa.Column("arguments", sa.Text(), nullable=False),
        sa.Column("restart_limit", sa.Integer(), nullable=False),
        sa.Column("restart_count", sa.Integer(), nullable=False),
        sa.Column("replan", sa.Boolean(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("after_stop", sa.String(16), nullable=True),
        sa.Column("lost_agents", sa.Text(), nullable=True),
        sa.Column("master_address", sa.String(253), nullable=True),
        sa.Column("master_port", sa.Integer(), nullable=True),
        sa.Column("created_at", _INSTANT, nullable=False),
        sa.Column("queued_at", _INSTANT, nullable=False),
        sa.Column("started_at", _INSTANT, nullable=True),
        sa.Column("finished_at", _INSTANT, nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("waiting_for", sa.Text(), nullable=True),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("checkpoint_step", sa.BigInteger(), nullable=True),
        sa.Column("operation_id", sa.String(64), nullable=True),
        _reference("runs", "project_id", "projects"),
        sa.PrimaryKeyConstraint("sequence", name="pk_runs"),
        sa.UniqueConstraint("id", name="uq_runs_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_runs_project_id", "runs", ["project_id", "sequence"])
    op.create_index("ix_runs_state", "runs", ["state", "queued_at"])
    op.create_table(
        "run_plans",
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("from_epoch", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("plan_id", sa.String(64), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        _reference("run_plans", "run_id", "runs", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "from_epoch", name="pk_run_plans"),
    )
    op.create_table(
        "run_events",
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        _reference("run_events", "run_id", "runs", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "number", name="pk_run_events"),
    )


def _create_leases() -> None:
    op.create_table(
        "leases",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("agent_id", sa.String(64), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("node_rank", sa.Integer(), nullable=False),
        sa.Column("node_count", sa.Integer(), nullable=False),
        sa.Column("node_span", sa.Integer(), nullable=False),
        sa.Column("first_rank", sa.Integer(), nullable=False),
        sa.Column("rank_count", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("offered_at", _INSTANT, nullable=False),
        sa.Column("expires_at", _INSTANT, nullable=False),
        sa.Column("ended_at", _INSTANT, nullable=True),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("checkpoint_step", sa.BigInteger(), nullable=True),
        sa.Column("log_offset", sa.BigInteger(), nullable=False),
        sa.Column("metric_sequence", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("result_digest", sa.String(64), nullable=True),
        sa.Column("result", sa.Text(), nullable=True),
        _reference("leases", "run_id", "runs", ondelete="CASCADE"),
        _reference("leases", "agent_id", "agents"),
        sa.PrimaryKeyConstraint("id", name="pk_leases"),
        sa.UniqueConstraint("run_id", "epoch", "node_rank", name="uq_leases_run_id"),
    )
    op.create_index("uq_leases_live_agent_id", "leases", ["agent_id"], unique=True, **_LIVE)
    op.create_index("ix_leases_ended_at", "leases", ["ended_at", "expires_at"])
    op.create_table(
        "lease_logs",
        sa.Column("lease_id", sa.String(64), nullable=False),
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("length", sa.Integer(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        _reference("lease_logs", "lease_id", "leases", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("lease_id", "position", name="pk_lease_logs"),
    )
    op.create_table(
        "lease_metrics",
        sa.Column("lease_id", sa.String(64), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("step_seconds", sa.Float(), nullable=False),
        sa.Column("tokens_per_second", sa.Float(), nullable=True),
        sa.Column("loss", sa.Float(), nullable=True),
        sa.Column("peak_memory_bytes", sa.BigInteger(), nullable=True),
        _reference("lease_metrics", "lease_id", "leases", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("lease_id", "number", name="pk_lease_metrics"),
    )


def _reference(
    table: str, column: str, target: str, *, ondelete: str | None = None
) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        [column], [f"{target}.id"], name=f"fk_{table}_{column}_{target}", ondelete=ondelete
    )
