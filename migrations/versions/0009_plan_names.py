"""What the list of plans shows first, as a column that it is sorted by."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_LENGTH = 200
_BATCH_LENGTH = 500


def upgrade() -> None:
    """Place the column before the long texts in SQLite, which reads a row from its start."""
    embedded = op.get_bind().dialect.name == "sqlite"
    place = {"insert_before": "summary"} if embedded else {}
    with op.batch_alter_table(
        "plans",
        recreate="always" if embedded else "never",
        table_kwargs={"sqlite_autoincrement": True},
    ) as plans:
        plans.add_column(
            sa.Column("sorted_name", sa.String(_LENGTH), server_default="", nullable=False), **place
        )
    _fill()
    op.create_index("ix_plans_sorted_name", "plans", ["project_id", "sorted_name", "sequence"])


def downgrade() -> None:
    op.drop_index("ix_plans_sorted_name", "plans")
    with op.batch_alter_table("plans", table_kwargs={"sqlite_autoincrement": True}) as plans:
        plans.drop_column("sorted_name")


def _fill() -> None:
    """Read the names of plans that are stored from their summaries."""
    columns = [sa.column(name) for name in ("sequence", "summary", "sorted_name")]
    plans = sa.table("plans", *columns)
    stored = sa.select(plans.c.sequence, plans.c.summary).order_by(plans.c.sequence)
    change = sa.update(plans).where(plans.c.sequence == sa.bindparam("at"))
    connection, last = op.get_bind(), 0
    while rows := connection.execute(
        stored.where(plans.c.sequence > last).limit(_BATCH_LENGTH)
    ).all():
        connection.execute(change, [_values(row.sequence, row.summary) for row in rows])
        last = rows[-1].sequence


def _values(sequence: int, summary: str) -> dict[str, object]:
    told = json.loads(summary)
    shown = (told.get("name") or told.get("model") or "").replace("\0", "\N{REPLACEMENT CHARACTER}")
    return {"at": sequence, "sorted_name": shown.casefold()[:_LENGTH]}
