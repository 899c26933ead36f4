"""The table of plans: searched, filtered, sorted and counted by what their summaries say.

Every figure that the table is sorted by has an index in that order, so that a page of fifty costs
fifty rows; so have tags. Words are searched in one column; that reads the short columns of the
project's newest plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, Select, bindparam, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from api.table_query import TableQuery
from api.tables import PlanRow, PlanTagRow, ProjectRow

SEARCHED_PLANS = 50_000
_CHANGES = select(ProjectRow.plan_changes).where(ProjectRow.id == bindparam("project_id"))
_COLUMNS = {"name": "sorted_name", "model": "model_name", "cluster": "cluster_name"}


class PlanTable:
    """The summaries of one project's plans."""

    def __init__(self, session: Session, project_id: str) -> None:
        self._session = session
        self._project_id = project_id

    def page(self, query: TableQuery, *, offset: int, limit: int) -> Sequence[str]:
        """Return at most `limit` summaries as JSON; rows without the sorted value come last."""
        wanted = (
            select(PlanRow.summary)
            .where(*matching(self._project_id, query))
            .order_by(*self._order(query))
            .offset(offset)
            .limit(limit)
        )
        return self._session.scalars(wanted).all()

    def count(self, query: TableQuery) -> int:
        """Return how many rows match."""
        found = matching(self._project_id, query)
        return self._session.scalar(select(func.count()).select_from(PlanRow).where(*found)) or 0

    def names(self, column: Literal["model_name", "cluster_name"]) -> Sequence[str]:
        """Return the different names of models or clusters, in order."""
        name = getattr(PlanRow, column)
        mine = select(name).where(PlanRow.project_id == self._project_id)
        return self._session.scalars(mine.distinct().order_by(name)).all()

    def tags(self) -> Sequence[str]:
        """Return the different tags of plans, in order."""
        mine = select(PlanTagRow.tag).where(PlanTagRow.project_id == self._project_id)
        return self._session.scalars(mine.distinct().order_by(PlanTagRow.tag)).all()

    def _order(self, query: TableQuery) -> tuple[ColumnElement[Any], ...]:
        """Return what to sort by, latest last or first; only figures can be missing."""
        latest = PlanRow.sequence.desc() if query.descending else PlanRow.sequence.asc()
        if query.sort == "created":
            return (latest,)
        column: InstrumentedAttribute[Any] = getattr(PlanRow, _COLUMNS.get(query.sort, query.sort))
        ordered = column.desc() if query.descending else column.asc()
        return (ordered if query.sort in _COLUMNS else ordered.nulls_last(), latest)


def plan_changes(connection: Connection, project_id: str) -> int:
    """Return how often the project's plans have changed: while it stays, so does each page."""
    return connection.scalar(_CHANGES, {"project_id": project_id}) or 0


def matching(project_id: str, query: TableQuery) -> list[ColumnElement[bool]]:
    """Return what holds for the rows of `project_id` that `query` asks for, whatever its order."""
    found = [PlanRow.project_id == project_id]
    for column, value in (
        (PlanRow.model_name, query.model),
        (PlanRow.cluster_name, query.cluster),
        (PlanRow.status, query.status),
    ):
        if value is not None:
            found.append(column == value)
    if query.tag is not None:
        found.append(PlanRow.id.in_(_tagged(project_id, query.tag)))
    words = query.text.lower().split()
    if words:
        found.append(PlanRow.sequence > _last_unsearched(project_id))
    return [*found, *(PlanRow.searched_text.contains(word, autoescape=True) for word in words)]


def _tagged(project_id: str, tag: str) -> Select[str]:
    return select(PlanTagRow.plan_id).where(
        PlanTagRow.project_id == project_id, PlanTagRow.tag == tag
    )


def _last_unsearched(project_id: str) -> ColumnElement[int]:
    """Return the number of the newest plan that is too old to be searched; 0 where none is."""
    newest_first = (
        select(PlanRow.sequence)
        .where(PlanRow.project_id == project_id)
        .order_by(PlanRow.sequence.desc())
    )
    return func.coalesce(newest_first.offset(SEARCHED_PLANS).limit(1).scalar_subquery(), 0)
