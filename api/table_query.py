"""What the table of plans is asked for with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SortField = Literal[
    "created",
    "name",
    "model",
    "cluster",
    "step_seconds",
    "tokens_per_second_per_device",
    "model_flop_utilization",
    "peak_memory_bytes",
    "cost_per_million_tokens",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableQuery:
    """Which rows of the table, in which order; what is `None` or empty matches all."""

    text: str = ""
    tag: str | None = None
    model: str | None = None
    cluster: str | None = None
    status: str | None = None
    sort: SortField = "created"
    descending: bool = True
