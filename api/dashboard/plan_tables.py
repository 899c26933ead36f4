"""The table of plans as a part of its page: made anew once the plans of the project changed."""

from __future__ import annotations

from functools import lru_cache

from markupsafe import Markup

from api.caller import Caller
from api.dashboard.plan_list import ListQuery, plan_list
from api.dashboard.rendering import part
from api.services.plan_table import PlanTableService

# A table of fifty plans has about 80 kB; a reader goes through a few.
_REMEMBERED_TABLES = 64


class PlanTables:
    """Renders pages of the table, and remembers those that were asked for last.

    What is remembered holds for the number of changes that was read before it was made, so that a
    change meanwhile has it made again. It is the same for all who may read the project.
    """

    def __init__(self, plans: PlanTableService) -> None:
        self._plans = plans
        self._remembered = lru_cache(maxsize=_REMEMBERED_TABLES)(self._made)

    def shown(self, caller: Caller, asked: ListQuery) -> Markup:
        """Return the page of the caller's table that was asked for."""
        return self._remembered(caller.project_id, self._plans.changes(caller.project_id), asked)

    def _made(self, project_id: str, _changes: int, asked: ListQuery) -> Markup:
        query = asked.table_query()
        found = self._plans.page(project_id, query, number=asked.page)
        return part("plan_table.html", view=plan_list(found, query))
