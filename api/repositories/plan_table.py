"""The table of plans: searched, filtered, sorted and counted by what their summaries say.

Every figure that the table is sorted by has an index in that order, so that a page of fifty costs
fifty rows. Words are searched in one column; that reads the short columns of the project's plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from api.table_query import TableQuery
from api.tables import PlanRow

_COLUMNS = {"model": "model_name", "cluster": "cluster_name"}


class PlanTable:
    """The summaries of one project's plans."""

    def __init__(self, session: Session, project_id: str) -> None:
        self._session = session
        self._project_id = project_id

    def page(self, query: TableQuery, *, offset: int, limit: int) -> Sequence[str]:
        """Return at most `limit` summaries as JSON; rows without the sorted value come last."""
        wanted = (
            select(PlanRow.summary)
            .where(*self._where(query))
            .order_by(*self._order(query))
            .offset(offset)
            .limit(limit)
        )
        return self._session.scalars(wanted).all()

    def count(self, query: TableQuery) -> int:
        """Return how many rows match."""
        matching = select(func.count()).select_from(PlanRow).where(*self._where(query))
        return self._session.scalar(matching) or 0

    def names(self, column: Literal["model_name", "cluster_name"]) -> Sequence[str]:
        """Return the different names of models or clusters, in order."""
        name = getattr(PlanRow, column)
        mine = select(name).where(PlanRow.project_id == self._project_id)
        return self._session.scalars(mine.distinct().order_by(name)).all()

    def _where(self, query: TableQuery) -> list[ColumnElement[bool]]:
        found = [PlanRow.project_id == self._project_id]
        for column, value in (
            (PlanRow.model_name, query.model),
            (PlanRow.cluster_name, query.cluster),
            (PlanRow.status, query.status),
        ):
            if value is not None:
                found.append(column == value)
        words = query.text.lower().split()
        return [*found, *(PlanRow.searched_text.contains(word, autoescape=True) for word in words)]

    def _order(self, query: TableQuery) -> tuple[ColumnElement[Any], ...]:
        """Return what to sort by, latest last or first; only figures can be missing."""
        latest = PlanRow.sequence.desc() if query.descending else PlanRow.sequence.asc()
        if query.sort == "created":
            return (latest,)
        column: InstrumentedAttribute[Any] = getattr(PlanRow, _COLUMNS.get(query.sort, query.sort))
        ordered = column.desc() if query.descending else column.asc()
        return (ordered if query.sort in _COLUMNS else ordered.nulls_last(), latest)
