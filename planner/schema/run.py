"""Run report: what happened when a plan was applied, rank by rank, beside what was predicted."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from planner.schema.document import Document, Part

Amount = Annotated[float, Field(ge=0)]


class RankReport(Part):
    """What one rank holds, did and measured. `peak_memory_bytes` counts live tensors, as predicted.

    `blocks` are those of the unsplit model that lie here; `placements` counts parameters by the
    mesh axes that divide them, joined by `+`, or `whole`.
    """

    rank: int
    stage: int
    mesh: dict[str, int]
    blocks: tuple[int, ...] = ()
    placements: dict[str, int] = Field(default_factory=dict)
    parameter_bytes: Amount
    peak_memory_bytes: Amount | None
    peak_memory_kind: Literal["live_tensors", "cuda_allocated"]
    step_seconds: tuple[Amount, ...]
    differences_from_plan: tuple[str, ...] = ()


class RunReport(Document):
    """One execution of a plan."""

    plan_id: str
    device: str
    backend: str
    world_size: int
    status: Literal["completed", "failed"]
    losses: tuple[float, ...]
    median_step_seconds: Amount
    predicted_step_seconds: Amount
    ranks: tuple[RankReport, ...]
    predicted_peak_memory_bytes: tuple[Amount, ...]
    torch_version: str
