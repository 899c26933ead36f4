"""Sign-in links that were followed, and sessions that were ended."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "spent_tokens",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_index("ix_spent_tokens_expires_at", "spent_tokens", ["expires_at"])


def downgrade() -> None:
    op.drop_table("spent_tokens")
