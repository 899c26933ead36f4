"""Tunings on a service's agents."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_SEQUENCE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_INSTANT = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "tunings",
        sa.Column("sequence", _SEQUENCE, autoincrement=True, nullable=False),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("project_id", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("model_name", sa.String(200), nullable=False),
        sa.Column("cluster_name", sa.String(200), nullable=False),
        sa.Column("command", sa.String(100), nullable=False),
        sa.Column("arguments", sa.Text(), nullable=False),
        sa.Column("run_budget", sa.Integer(), nullable=False),
        sa.Column("step_budget", sa.Integer(), nullable=False),
        sa.Column("trial_count", sa.Integer(), nullable=False),
        sa.Column("begun_count", sa.Integer(), nullable=False),
        sa.Column("best_seconds", sa.Float(), nullable=True),
        sa.Column("faster_ratio", sa.Float(), nullable=True),
        sa.Column("best_plan_id", sa.String(64), nullable=True),
        sa.Column("created_at", _INSTANT, nullable=False),
        sa.Column("finished_at", _INSTANT, nullable=True),
        sa.Column("work_token", sa.String(64), nullable=True),
        sa.Column("work_expires_at", _INSTANT, nullable=True),
        sa.Column("under_way", sa.Text(), nullable=True),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("sequence", name="pk_tunings"),
        sa.UniqueConstraint("id", name="uq_tunings_id"),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name="fk_tunings_project_id_projects"
        ),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_tunings_project_id", "tunings", ["project_id", "sequence"])
    op.create_index("ix_tunings_state", "tunings", ["state"])


def downgrade() -> None:
    op.drop_table("tunings")
