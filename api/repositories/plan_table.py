"""The table of plans: searched, filtered, sorted and counted by what their summaries say.

Summaries are JSON text; their fields are read in the database, so that a page of fifty costs fifty
rows. The index of a project's plans keeps that to the project's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from sqlalchemy import JSON, ColumnElement, cast, func, or_, select, type_coerce
from sqlalchemy.orm import Session

from api.table_query import TableQuery
from api.tables import PlanRow


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
        for word in query.text.split():
            places = (
                PlanRow.model_name,
                PlanRow.cluster_name,
                PlanRow.id,
                self._field("strategy").as_string(),
            )
            found.append(or_(*(place.icontains(word, autoescape=True) for place in places)))
        return found

    def _order(self, query: TableQuery) -> tuple[ColumnElement[Any], ...]:
        """Return what to sort by. Columns are never null, so that indices give their order."""
        columns = {
            "created": PlanRow.sequence,
            "model": PlanRow.model_name,
            "cluster": PlanRow.cluster_name,
        }
        column = columns.get(query.sort)
        key = self._field(query.sort).as_float() if column is None else column.expression
        ordered = key.desc() if query.descending else key.asc()
        if query.sort == "created":
            return (ordered,)
        latest = PlanRow.sequence.desc() if query.descending else PlanRow.sequence.asc()
        return (ordered, latest) if column is not None else (key.is_(None), ordered, latest)

    def _field(self, name: str) -> Any:
        """Return a field of the summary; PostgreSQL must be told that the text is JSON."""
        if self._session.get_bind().dialect.name == "sqlite":
            return type_coerce(PlanRow.summary, JSON)[name]
        return cast(PlanRow.summary, JSON)[name]
