"""Run: one execution of a plan, as it is asked for, watched and reported.

`RunReport` says what happened when a plan was applied, rank by rank, beside what was predicted.
The other documents are those of runs that the service hands to agents.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, JsonValue

from planner.schema.agent import CommandName, Identifier
from planner.schema.document import Count, Document, Flag, Part, PositiveCount
from planner.schema.lease import Arguments, LeaseProgress, MetricRow
from planner.schema.lifecycle import LeaseState, RunState
from planner.schema.plan import Interval

Amount = Annotated[float, Field(ge=0)]


class AppliedNumerics(Part):
    """What is done to a step's numbers beside what a script does itself.

    `largest_gradient_norm` is what gradients are clipped to, none where they are left as they are;
    `loss_scale` is the last one. `logits_format` is what the loss gets.
    """

    precision: str
    logits_format: str
    largest_gradient_norm: Amount | None
    loss_scale: Amount | None
    ignored_target: int | None


class UndefinedLosses(Part):
    """Steps whose loss was no finite number: how many, the first, and the ranks that it was on."""

    first_step: PositiveCount
    ranks: tuple[Count, ...]
    step_count: Count


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
    numerics: AppliedNumerics | None = None
    undefined_losses: UndefinedLosses | None = None


class RunReport(Document):
    """One execution of a plan. A loss that was no finite number is none."""

    plan_id: str
    device: str
    backend: str
    world_size: int
    status: Literal["completed", "stopped", "failed"]
    losses: tuple[float | None, ...]
    median_step_seconds: Amount
    predicted_step_seconds: Amount
    predicted_step_interval: Interval | None = None
    ranks: tuple[RankReport, ...]
    predicted_peak_memory_bytes: tuple[Amount, ...]
    torch_version: str

    @property
    def finite_losses(self) -> tuple[float, ...]:
        """Return the losses that are numbers."""
        return tuple(loss for loss in self.losses if loss is not None)


class RunRequest(Part):
    """What to run: a plan, by a command that agents allow, with arguments for it.

    A run is started again from its last checkpoint up to `restart_limit` times. Where an agent is
    lost and `replan` holds, that is with a new plan for the devices that are left.
    """

    model_config = ConfigDict(
        defer_build=False,
        json_schema_extra={
            "examples": [{"plan_id": "plan-0123456789abcdef", "arguments": {"steps": 200}}]
        },
    )

    plan_id: Identifier
    command: CommandName = "train"
    arguments: Arguments = Field(default_factory=dict)
    restart_limit: Annotated[int, Field(ge=0, le=1_000_000)] = 3
    replan: Flag = True


class RunLease(Part):
    """Which agent had which part of an attempt, and how that ended."""

    lease_id: str
    agent_id: str
    agent_name: str
    node_rank: Count
    ranks: tuple[Count, ...]
    state: LeaseState
    progress: LeaseProgress | None = None
    reason: str | None = None


class Run(Part):
    """A run as it is now. `leases` are those of its newest attempt; `reason` says why it ended.

    `plan_id` is the plan that it follows now, `first_plan_id` the one that it was asked for with.
    `waiting_for` says of a queued run what it lacks.
    """

    id: str
    state: RunState
    plan_id: str
    first_plan_id: str
    command: str
    arguments: Arguments
    restart_limit: Count
    restart_count: Count
    replan: bool
    epoch: Count
    attempt: Count
    cancel_requested: bool
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    reason: str | None = None
    waiting_for: str | None = None
    step: Count | None = None
    checkpoint_step: Count | None = None
    operation_id: str | None = None
    leases: tuple[RunLease, ...] = ()


class RunPage(Part):
    """Some runs, newest first; `next_cursor` asks for the ones after them."""

    items: tuple[Run, ...]
    next_cursor: str | None


class PlanChange(Part):
    """What a replan cost: strategies in short, devices and predicted seconds per step of both."""

    lost_agents: tuple[str, ...]
    old_plan_id: str
    new_plan_id: str
    old_strategy: str
    new_strategy: str
    old_device_count: PositiveCount
    new_device_count: PositiveCount
    old_step_seconds: Amount
    new_step_seconds: Amount
    step_seconds_ratio: Amount
    resumed_from_step: Count | None


class RunEvent(Part):
    """One entry of a run's history, numbered from 1. `text` says it in a sentence.

    `state`: it went to `state`. `leased`, `lease_ended`: agents took or left it. `replanned`:
    `change` has the old and the new plan. `cancel_requested`: somebody wants it to end.
    """

    number: PositiveCount
    at: datetime
    kind: Literal["state", "leased", "lease_ended", "replanned", "cancel_requested"]
    text: str
    state: RunState | None = None
    attempt: Count | None = None
    change: PlanChange | None = None


class RunHistory(Part):
    """All that happened to a run, in order."""

    items: tuple[RunEvent, ...]


class PredictedRun(Part):
    """What a plan of the run predicts; peaks are of each rank, in order."""

    plan_id: str
    from_attempt: Count
    step_seconds: Interval
    tokens_per_second: Amount
    peak_memory_bytes: tuple[Amount, ...]


class MeasuredStep(MetricRow):
    """A row of metrics, and the attempt that measured it."""

    attempt: PositiveCount


class MeasuredSummary(Part):
    """The newest attempt in figures: medians over its steps but the first, the slowest rank each.

    The first step of an attempt has warm-up in it, which no plan predicts.
    """

    attempt: PositiveCount
    step_count: Count
    median_step_seconds: Amount | None
    median_tokens_per_second: Amount | None
    last_loss: float | None
    peak_memory_bytes: tuple[Amount | None, ...]
    step_seconds_ratio: Amount | None


class RunMetrics(Part):
    """Measured rows in the order of their arrival, beside what was predicted.

    `next_cursor` asks for the rows after these, also for such as are yet to come.
    """

    predicted: tuple[PredictedRun, ...]
    measured: MeasuredSummary | None
    items: tuple[MeasuredStep, ...]
    next_cursor: str


class RunLog(Part):
    """A piece of what one node wrote in one attempt, from byte `offset` on.

    `end_offset` is where the next piece starts; `complete` says that none will come any more.
    `removed` says that there was a log, and it was too old to be kept.
    """

    attempt: PositiveCount
    node_rank: Count
    offset: Count
    end_offset: Count
    complete: bool
    removed: bool = False
    text: str


class RunResult(Part):
    """What node 0 of the last attempt left behind, if it did."""

    run_id: str
    state: RunState
    report: dict[str, JsonValue] | None
