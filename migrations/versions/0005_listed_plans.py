"""What the table of plans is sorted by and searched in, as columns of their own."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_SORTED = (
    "step_seconds",
    "tokens_per_second_per_device",
    "model_flop_utilization",
    "peak_memory_bytes",
    "cost_per_million_tokens",
)
_SEARCHED = ("model", "cluster", "strategy", "id")
_BATCH_LENGTH = 500


def upgrade() -> None:
    """Place the columns before the long texts in SQLite, which reads a row from its start.

    PostgreSQL keeps long texts elsewhere, and need not write the table anew.
    """
    embedded = op.get_bind().dialect.name == "sqlite"
    place = {"insert_before": "summary"} if embedded else {}
    with op.batch_alter_table(
        "plans",
        recreate="always" if embedded else "never",
        table_kwargs={"sqlite_autoincrement": True},
    ) as plans:
        for name in _SORTED:
            plans.add_column(sa.Column(name, sa.Float(), nullable=True), **place)
        plans.add_column(
            sa.Column("searched_text", sa.Text(), server_default="", nullable=False), **place
        )
    _fill()
    for name in _SORTED:
        op.create_index(f"ix_plans_{name}", "plans", ["project_id", name, "sequence"])


def downgrade() -> None:
    for name in _SORTED:
        op.drop_index(f"ix_plans_{name}", "plans")
    with op.batch_alter_table("plans", table_kwargs={"sqlite_autoincrement": True}) as plans:
        for name in (*_SORTED, "searched_text"):
            plans.drop_column(name)


def _fill() -> None:
    """Read the columns of plans that are stored from their summaries."""
    columns = [sa.column(name) for name in ("sequence", "summary", *_SORTED, "searched_text")]
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
    words = (str(told[name]) for name in _SEARCHED if told.get(name) is not None)
    text = "\n".join(words).replace("\0", "\N{REPLACEMENT CHARACTER}")
    return {"at": sequence, "searched_text": text.lower(), **{n: told.get(n) for n in _SORTED}}
