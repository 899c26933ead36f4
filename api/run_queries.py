"""What lists and pages of runs and agents are asked for with."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from api.schemas import WirePart
from planner.schema.agent import Identifier
from planner.schema.lifecycle import RunState

_CURSOR = Annotated[str | None, Field(max_length=20_000)]


class RunQuery(WirePart):
    """Which runs to list; what is left out matches all."""

    state: RunState | None = None
    plan_id: Identifier | None = None
    cursor: Annotated[str | None, Field(max_length=64)] = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20


class AgentQuery(WirePart):
    """Which agents to list."""

    cursor: Annotated[str | None, Field(max_length=128)] = None
    limit: Annotated[int, Field(ge=1, le=100)] = 100


class RunMetricsQuery(WirePart):
    """Which rows: those after the cursor."""

    cursor: _CURSOR = None
    limit: Annotated[int, Field(ge=1, le=10_000)] = 1000


class RunLogQuery(WirePart):
    """Which node's log of which attempt (the newest where none is named), and from which byte."""

    attempt: Annotated[int | None, Field(ge=1, le=2**31 - 1)] = None
    node: Annotated[int, Field(ge=0, le=2**20)] = 0
    offset: Annotated[int, Field(ge=0, le=2**62)] = 0
