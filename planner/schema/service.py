"""What a service answers besides the planner's own documents, as its clients read it."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from planner.schema.document import Part

_NAME_LENGTH_LIMIT = 200

# What stands in lists and headings is one line with something to see at both ends; what reorders or
# hides text is refused with the control characters.
_HIDDEN = r"\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
_CONTROLS = rf"\x00-\x1f{_HIDDEN}"
PlanName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=_NAME_LENGTH_LIMIT,
        pattern=rf"^[^\s{_CONTROLS}]([^{_CONTROLS}]*[^\s{_CONTROLS}])?$",
    ),
]
PlanNotes = Annotated[str, Field(max_length=2000, pattern=rf"^[^\x00-\x08\x0b-\x1f{_HIDDEN}]*$")]
PlanTag = Annotated[str, Field(min_length=1, max_length=40, pattern=rf"^[^\s,{_CONTROLS}]+$")]
PlanTags = Annotated[tuple[PlanTag, ...], Field(max_length=20)]


class PlanSummary(Part):
    """A line of the list of plans; what an infeasible answer does not have is null.

    `step_seconds` is p50, beside p10 and p90; `strategy` is in short; `peak_memory_bytes` and
    `capacity_bytes` are the fullest stage's; `owner` is who asked for it first, by the name of the
    key, null where that took none.
    """

    id: str
    status: Literal["planned", "infeasible"]
    model: str
    cluster: str
    device_count: int
    global_batch_size: int | None
    sequence_length: int | None
    created_at: datetime
    step_seconds: float | None = None
    step_seconds_p10: float | None = None
    step_seconds_p90: float | None = None
    tokens_per_second_per_device: float | None = None
    model_flop_utilization: float | None = None
    cost_per_million_tokens: float | None = None
    strategy: str | None = None
    peak_memory_bytes: float | None = None
    capacity_bytes: float | None = None
    certificate_status: Literal["optimal", "feasible"] | None = None
    gap_ratio: float | None = None
    name: str | None = None
    tags: tuple[str, ...] = ()
    owner: str | None = None


class PlanLabels(Part):
    """What people call a plan and write beside it; the plan itself never changes."""

    name: PlanName | None = None
    notes: PlanNotes = ""
    tags: PlanTags = ()


class PlanPage(Part):
    """Some plans, newest first; `next_cursor` asks for the ones after them."""

    items: tuple[PlanSummary, ...]
    next_cursor: str | None


class OperationState(StrEnum):
    """Where a solve is in its life."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class ProblemField(Part):
    """One field to correct."""

    field: str
    value: JsonValue = None
    remedy: str
    problem: str | None = None


class Problem(Part):
    """A problem of RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    instance: str | None = None
    request_id: str | None = None
    errors: tuple[ProblemField, ...] = ()


class Operation(Part):
    """A solve that was asked for: its progress while it runs, then a plan or a problem."""

    id: str
    state: OperationState
    created_at: datetime
    finished_at: datetime | None = None
    progress: dict[str, JsonValue] | None = None
    plan_id: str | None = None
    problem: Problem | None = None


class ExportedText(Part):
    """A file by its name, which has no directory, and its text."""

    name: str
    text: str


class PlanExport(Part):
    """What a plan becomes for a target; `losses` say what the target cannot express of it."""

    target: str
    files: tuple[ExportedText, ...]
    losses: tuple[str, ...]
