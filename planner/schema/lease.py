"""Lease: an agent's part of one attempt at a run, and everything that is written under it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, JsonValue

from planner.schema.agent import BODY, Address, CommandName, Intervals
from planner.schema.document import Count, Document, Flag, Name, Part, PositiveCount
from planner.schema.lifecycle import LeaseState
from planner.schema.plan import Plan

LOG_TEXT_LIMIT = 2**18
METRIC_ROWS_LIMIT = 1000
Rank = Annotated[int, Field(ge=0, le=2**20)]
Port = Annotated[int, Field(ge=1, le=65_535)]
Amount = Annotated[float, Field(ge=0, le=1e18)]
Reason = Annotated[str, Field(max_length=2000)]
_ARGUMENT_LENGTH_LIMIT = 4000
Argument = Annotated[str, Field(max_length=_ARGUMENT_LENGTH_LIMIT)]


def _plain(value: object) -> object:
    """Return `value` if it is of a plain kind; one message says so where it is of none."""
    if isinstance(value, str) and len(value) > _ARGUMENT_LENGTH_LIMIT:
        raise ValueError(f"is too long; write at most {_ARGUMENT_LENGTH_LIMIT} characters")
    if isinstance(value, str | int | float):
        return value
    raise ValueError("is not text, a number, true or false; write one of these")


ArgumentValue = Annotated[Argument | bool | int | float, BeforeValidator(_plain)]
Arguments = Annotated[dict[Name, ArgumentValue], Field(max_length=100)]


def argument_text(value: ArgumentValue) -> str:
    """Return an argument as the process gets it, and as patterns are held against it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


class Lease(Document):
    """One agent's part of one attempt at a run; `epoch` goes with everything it writes.

    The agent starts `len(ranks)` processes: `ranks` are theirs in the world of
    `plan.strategy.world_size`, in the order of its devices. It is node `node_rank` of `node_count`
    (of `node_span` nodes from there on where it submits to a scheduler). `master_address` and
    `master_port` are where node 0 holds the rendezvous, until a heartbeat's answer says otherwise.

    `command` names a template of the agent's own configuration and `arguments` are values for it:
    data, never shell. `checkpoint_folder` is relative to where the agent keeps checkpoints, which
    all nodes of a run share; `resume` says to go on from the newest in it, if there is one.

    `state` is how far the service believes the agent to be: an agent that is given a lease beyond
    `offered` which it does not hold (it was restarted) reports it `failed`.
    """

    id: str
    run_id: str
    epoch: PositiveCount
    attempt: PositiveCount
    state: LeaseState
    plan: Plan
    command: CommandName
    arguments: Arguments
    node_rank: Count
    node_count: PositiveCount
    node_span: PositiveCount = 1
    ranks: tuple[Rank, ...]
    master_address: Address
    master_port: Port
    checkpoint_folder: Name
    resume: bool
    intervals: Intervals


class LeaseProgress(Part):
    """How far training is: the last step done, and the last whole checkpoint's step."""

    step: Count | None = None
    checkpoint_step: Count | None = None


class Heartbeat(Part):
    """An agent lives, and is this far. It extends the lease by the service's clock.

    Node 0 may say with `ready` which port it has found free.
    """

    model_config = BODY

    epoch: PositiveCount
    state: Literal[LeaseState.PREPARING, LeaseState.READY, LeaseState.RUNNING]
    progress: LeaseProgress | None = None
    master_port: Port | None = None


class HeartbeatAnswer(Part):
    """What to do: `go` launches (all agents are ready), `stop` kills the ranks and reports.

    `stop` comes when the run was cancelled (`cancel_requested`) or another part of the gang is
    lost; `stop_reason` says which. With `go` the rendezvous is final.
    """

    state: LeaseState
    go: bool
    stop: bool
    stop_reason: str | None = None
    cancel_requested: bool
    master_address: str
    master_port: int
    intervals: Intervals


class LogChunk(Part):
    """Text whose first byte (in UTF-8) is byte `offset` of this lease's log."""

    model_config = BODY

    epoch: PositiveCount
    offset: Count
    text: Annotated[str, Field(min_length=1, max_length=LOG_TEXT_LIMIT)]


class LogAcknowledgement(Part):
    """All bytes below `acknowledged_offset` are stored durably; the next chunk starts there."""

    acknowledged_offset: Count


class MetricRow(Part):
    """What one rank measured in one step; what was not measured, or is not finite, is null.

    `tokens_per_second` is the whole job's.
    """

    rank: Rank
    step: Count
    step_seconds: Amount
    tokens_per_second: Amount | None = None
    loss: Annotated[float, Field(ge=-1e30, le=1e30)] | None = None
    peak_memory_bytes: Count | None = None


class MetricsChunk(Part):
    """Rows numbered from `sequence` upwards; a lease's first row is number 0."""

    model_config = BODY

    epoch: PositiveCount
    sequence: Count
    rows: Annotated[tuple[MetricRow, ...], Field(min_length=1, max_length=METRIC_ROWS_LIMIT)]


class MetricsAcknowledgement(Part):
    """All rows numbered below `acknowledged_sequence` are stored durably."""

    acknowledged_sequence: Count


class LeaseResult(Part):
    """How an agent's part ended, put once: the same again changes nothing, another is refused.

    `stopped`: the agent was told to stop, or its own operator stopped it. `report` is node 0's
    `RunReport`, or whatever the command leaves behind. A part that `failed` is `refused` where the
    node's configuration does not allow it, or its command cannot run what it was given: the same
    would be refused again. `checkpoint_step` is the last whole checkpoint's, which no heartbeat may
    have told yet.
    """

    model_config = BODY

    epoch: PositiveCount
    outcome: Literal[LeaseState.SUCCEEDED, LeaseState.FAILED, LeaseState.STOPPED]
    reason: Reason | None = None
    refused: Flag = False
    checkpoint_step: Count | None = None
    failed_rank: Rank | None = None
    exit_code: Annotated[int, Field(ge=-255, le=255)] | None = None
    report: dict[str, JsonValue] | None = None


class ResultAcknowledgement(Part):
    """The result is stored durably."""

    state: LeaseState
