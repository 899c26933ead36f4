"""Tunings."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import select, update
from sqlalchemy.orm import Session, defer

from api.tables import TuningRow


class TuningRepository:
    """Tunings of all projects: the service itself takes them all on."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, row: TuningRow) -> None:
        """Store a new tuning."""
        self._session.add(row)
        self._session.flush()

    def get(self, tuning_id: str) -> TuningRow | None:
        """Return the tuning with that id."""
        return self._session.scalar(select(TuningRow).where(TuningRow.id == tuning_id))

    def locked(self, tuning_id: str) -> TuningRow:
        """Return the tuning as it is now; nobody else changes it before this unit of work ends."""
        return self._session.scalars(
            select(TuningRow)
            .where(TuningRow.id == tuning_id)
            .with_for_update()
            .execution_options(populate_existing=True)
        ).one()

    def running(self) -> Sequence[TuningRow]:
        """Return the tunings that go on, without their documents, the oldest first."""
        return self._session.scalars(
            select(TuningRow)
            .where(TuningRow.state == "running")
            .options(defer(TuningRow.document, raiseload=True))
            .order_by(TuningRow.sequence)
        ).all()

    def page(
        self, project_id: str, *, state: str | None, before: int | None, limit: int
    ) -> Sequence[TuningRow]:
        """Return at most `limit` tunings, the newest first, older than `before`.

        They come without their documents, which a list does not show.
        """
        wanted = select(TuningRow).where(TuningRow.project_id == project_id)
        if state is not None:
            wanted = wanted.where(TuningRow.state == state)
        if before is not None:
            wanted = wanted.where(TuningRow.sequence < before)
        wanted = wanted.options(defer(TuningRow.document, raiseload=True))
        return self._session.scalars(wanted.order_by(TuningRow.sequence.desc()).limit(limit)).all()

    def renew_work(self, tokens: Collection[str], *, until: datetime) -> None:
        """Extend the leases on working out what comes next."""
        self._session.execute(
            update(TuningRow).where(TuningRow.work_token.in_(tokens)).values(work_expires_at=until)
        )

    def work_leases(self) -> dict[str, tuple[str | None, datetime | None]]:
        """Return the tunings of which what comes next is worked out: by whom, and until when."""
        wanted = select(TuningRow.id, TuningRow.work_token, TuningRow.work_expires_at)
        rows = self._session.execute(wanted.where(TuningRow.work_token.is_not(None)))
        return {tuning_id: (token, end) for tuning_id, token, end in rows}
