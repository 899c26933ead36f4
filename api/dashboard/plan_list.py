"""What the table of plans shows: rows, how they are filtered and sorted, links to other pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal
from urllib.parse import urlencode

from pydantic import ConfigDict, Field

from api.schemas import WirePart
from api.services.plan_table import PAGE_LENGTH, TablePage
from api.table_query import SortField, TableQuery

_HEADINGS: tuple[tuple[SortField, str, bool], ...] = (
    ("name", "Name and strategy", False),
    ("cluster", "Cluster and batch", False),
    ("step_seconds", "Step time", True),
    ("tokens_per_second_per_device", "Tokens/s per device", True),
    ("model_flop_utilization", "MFU", True),
    ("peak_memory_bytes", "Peak memory", True),
    ("cost_per_million_tokens", "Cost per M tokens", True),
)
_DESCENDING_FIRST = frozenset({"created", "tokens_per_second_per_device", "model_flop_utilization"})
ShortText = Annotated[str, Field(max_length=200)]


class ListQuery(WirePart):
    """What the address of the table says; what is left out matches all."""

    model_config = ConfigDict(extra="ignore")

    q: ShortText = ""
    tag: ShortText = ""
    model: ShortText = ""
    cluster: ShortText = ""
    status: Literal["", "planned", "infeasible"] = ""
    sort: SortField = "created"
    order: Literal["asc", "desc"] = "desc"
    page: Annotated[int, Field(ge=1, le=10**9)] = 1

    def table_query(self) -> TableQuery:
        """Return which rows are wanted, in which order."""
        return TableQuery(
            text=self.q.strip(),
            tag=self.tag or None,
            model=self.model or None,
            cluster=self.cluster or None,
            status=self.status or None,
            sort=self.sort,
            descending=self.order == "desc",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """A column's head: `order` is its `aria-sort`, `url` sorts by it or the other way round."""

    label: str
    is_number: bool
    order: str | None
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanList:
    """The table, arranged for its page."""

    page: TablePage
    query: TableQuery
    headings: tuple[Heading, ...]
    created: Heading
    is_filtered: bool
    first: int
    last: int
    previous_url: str | None
    next_url: str | None


def plan_list(page: TablePage, query: TableQuery) -> PlanList:
    """Return the page of the table with its links."""
    first = (page.number - 1) * PAGE_LENGTH + 1
    more = page.number < page.page_count
    return PlanList(
        page=page,
        query=query,
        headings=tuple(_heading(query, *column) for column in _HEADINGS),
        created=_heading(query, "created", "Created", False),
        is_filtered=any((query.text, query.tag, query.model, query.cluster, query.status)),
        first=first,
        last=first + len(page.plans) - 1,
        previous_url=_url(query, number=page.number - 1) if page.number > 1 else None,
        next_url=_url(query, number=page.number + 1) if more else None,
    )


def _heading(query: TableQuery, field: SortField, label: str, is_number: bool) -> Heading:
    is_sorted = query.sort == field
    descending = not query.descending if is_sorted else field in _DESCENDING_FIRST
    order = None
    if is_sorted:
        order = "descending" if query.descending else "ascending"
    return Heading(
        label=label,
        is_number=is_number,
        order=order,
        url=_url(query, sort=field, descending=descending),
    )


def _url(
    query: TableQuery,
    *,
    sort: SortField | None = None,
    descending: bool | None = None,
    number: int = 1,
) -> str:
    """Return the link to a page of the same filters, by default in the same order."""
    wanted = {
        "q": query.text,
        "tag": query.tag or "",
        "model": query.model or "",
        "cluster": query.cluster or "",
        "status": query.status or "",
        "sort": sort or query.sort,
        "order": "desc" if (query.descending if descending is None else descending) else "asc",
        "page": str(number) if number > 1 else "",
    }
    return "/?" + urlencode({name: value for name, value in wanted.items() if value})
