"""Notes and tags of plans."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("plans", sa.Column("notes", sa.Text(), server_default="", nullable=False))
    op.create_table(
        "plan_tags",
        sa.Column("project_id", sa.String(64), nullable=False),
        sa.Column("plan_id", sa.String(64), nullable=False),
        sa.Column("tag", sa.String(40), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id", "plan_id"],
            ["plans.project_id", "plans.id"],
            name="fk_plan_tags_project_id_plans",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("project_id", "plan_id", "tag", name="pk_plan_tags"),
    )
    op.create_index("ix_plan_tags_tag", "plan_tags", ["project_id", "tag", "plan_id"])


def downgrade() -> None:
    op.drop_table("plan_tags")
    with op.batch_alter_table("plans", table_kwargs={"sqlite_autoincrement": True}) as plans:
        plans.drop_column("notes")
