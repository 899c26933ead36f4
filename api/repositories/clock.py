"""The one clock by which leases expire: the database's, which all processes share."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session


def current_time(session: Session) -> datetime:
    """Return the time now; with SQLite the database is in this process, and so is its clock."""
    if session.get_bind().dialect.name == "sqlite":
        return datetime.now(UTC)
    moment: datetime = session.scalars(select(func.clock_timestamp())).one()
    return moment.astimezone(UTC)
