"""How often a project's plans have changed, so that what was made of them is known to hold."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    count = sa.Column("plan_changes", sa.BigInteger(), server_default="0", nullable=False)
    op.add_column("projects", count)


def downgrade() -> None:
    op.drop_column("projects", "plan_changes")
