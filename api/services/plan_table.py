"""The table of plans as people browse it: by number of page, in any order."""

from __future__ import annotations

from dataclasses import dataclass, replace

from api.db import Database
from api.repositories.plan_table import PlanTable, plan_changes
from api.services.records import column_text
from api.table_query import TableQuery
from planner.schema.service import PlanSummary

PAGE_LENGTH = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePage:
    """Some rows of the table. `number` counts pages from 1; `plan_count` counts all that match."""

    plans: tuple[PlanSummary, ...]
    number: int
    page_count: int
    plan_count: int
    models: tuple[str, ...]
    clusters: tuple[str, ...]
    tags: tuple[str, ...]


class PlanTableService:
    """What can be asked about the table."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def changes(self, project_id: str) -> int:
        """Return a number that is another once any page of the project's table may be another."""
        with self._database.looking_up() as connection:
            return plan_changes(connection, project_id)

    def page(self, project_id: str, query: TableQuery, *, number: int) -> TablePage:
        """Return one page of the project's table; a number past the end gives the last page."""
        query = as_kept(query)
        with self._database.reading() as session:
            table = PlanTable(session, project_id)
            plan_count = table.count(query)
            page_count = max(-(-plan_count // PAGE_LENGTH), 1)
            number = min(max(number, 1), page_count)
            summaries = table.page(query, offset=(number - 1) * PAGE_LENGTH, limit=PAGE_LENGTH)
            models, clusters = table.names("model_name"), table.names("cluster_name")
            tags = table.tags()
        return TablePage(
            plans=tuple(PlanSummary.model_validate_json(summary) for summary in summaries),
            number=number,
            page_count=page_count,
            plan_count=plan_count,
            models=tuple(models),
            clusters=tuple(clusters),
            tags=tuple(tags),
        )


def as_kept(query: TableQuery) -> TableQuery:
    """Return the query with its words as the database keeps words."""
    return replace(
        query,
        text=column_text(query.text),
        model=None if query.model is None else column_text(query.model),
        cluster=None if query.cluster is None else column_text(query.cluster),
        tag=None if query.tag is None else column_text(query.tag),
    )
