"""Simulate: run a schedule's orders event by event.

What an action waits for is in `planner.cost.precedence`. Between ranks an input arrives a message's
seconds after it was handed over; sending costs its rank nothing. What is ignored: ranks that share
a link, and collectives of data-parallel groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planner.cost.holdings import most_held
from planner.cost.orders import Action, Order
from planner.cost.precedence import (
    NO_WAIT,
    Precedence,
    precedence,
    round_length,
    schedule_precedence,
)
from planner.cost.schedule import rank_of_virtual_stage
from planner.schema.strategy import PipelineSchedule

_ROUNDS_MOST, _ROUNDS_LEAST = 12, 3
"""Rounds of micro-batches that are run one by one; later ones repeat the last."""
_ACTIONS_MOST = 40_000
"""Fewer rounds are run where they would have more actions than these."""
STAGES_MOST = 256
"""Virtual stages of the longest pipeline that is simulated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualStageSeconds:
    """Seconds of one micro-batch in one virtual stage; recompute counts as input gradient."""

    forward: float
    input_gradient: float
    weight_gradient: float

    @property
    def total(self) -> float:
        """Return the seconds of all three."""
        return self.forward + self.input_gradient + self.weight_gradient

    def by_kind(self) -> tuple[float, float, float, float]:
        """Return the seconds of each of `KINDS`; a whole backward takes both gradients' time."""
        backward = self.input_gradient + self.weight_gradient
        return self.forward, self.input_gradient, self.weight_gradient, backward


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """When a rank was busy with what, in seconds from the start of the step."""

    rank: int
    action: Action
    start_seconds: float
    end_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTimeline:
    """What one rank did: its spans in order.

    `peak_in_flight` counts micro-batches whose activations it holds at its peak, in all of its
    layers: one of its v virtual stages counts 1/v.
    """

    spans: tuple[Span, ...]
    finish_seconds: float
    busy_seconds: float
    peak_in_flight: float

    def idle_seconds(self, makespan_seconds: float) -> float:
        """Return how long the rank waits, from the start of the step to `makespan_seconds`."""
        return makespan_seconds - self.busy_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """A step without its end (gradient sync and optimiser), rank by rank."""

    ranks: tuple[RankTimeline, ...]

    @property
    def makespan_seconds(self) -> float:
        """Return when the last rank is done."""
        return max(rank.finish_seconds for rank in self.ranks)


def simulate(
    orders: Sequence[Order],
    seconds: Sequence[VirtualStageSeconds],
    *,
    message_seconds: Sequence[float],
) -> Simulation:
    """Return when each rank runs each action of its order.

    `seconds` are by virtual stage; `message_seconds` by boundary, one way, the first between
    virtual stages 0 and 1.

    Raises:
        ValueError: if the orders wait for one another for ever.
    """
    spans: list[list[Span]] = [[] for _ in orders]
    for span in spans_of(precedence(orders), seconds, message_seconds=message_seconds):
        spans[span.rank].append(span)
    return Simulation(
        ranks=tuple(_timeline(own, order) for own, order in zip(spans, orders, strict=True))
    )


def spans_of(
    waits: Precedence,
    seconds: Sequence[VirtualStageSeconds],
    *,
    message_seconds: Sequence[float],
) -> list[Span]:
    """Return when each action runs; those of one rank stand in their order."""
    starts, ends = _times(waits, seconds, message_seconds)
    return [
        Span(rank=step.rank, action=action, start_seconds=start, end_seconds=end)
        for step, action, start, end in zip(waits.steps, waits.actions, starts, ends, strict=True)
    ]


def finish_seconds(
    schedule: PipelineSchedule,
    seconds: Sequence[VirtualStageSeconds],
    *,
    pipeline_parallel_degree: int,
    virtual_pipeline_degree: int,
    micro_batch_count: int,
    message_seconds: Sequence[float],
) -> tuple[float, ...]:
    """Return when each rank of a schedule ends its last backward, as `simulate` has it.

    A lone rank never waits. A full pipeline does the same in every round: of more than twelve
    rounds the first twelve are simulated, and the others take as long as the twelfth, which may
    still make up for waits of the first ones: no less than the rank is busy in a round. Long
    pipelines have fewer rounds simulated, three at the least.

    Raises:
        ValueError: as `planner.cost.orders.rank_orders`.
    """
    degree, count = pipeline_parallel_degree, micro_batch_count
    if degree == 1:
        return (count * sum(stage.total for stage in seconds),)
    length = round_length(schedule, degree=degree, micro_batch_count=count)
    rounds = _ACTIONS_MOST // (2 * len(seconds) * length)
    rounds = min(max(rounds, _ROUNDS_LEAST), _ROUNDS_MOST)
    left = max(-(-count // length) - rounds, 0)

    def finish(micro_batches: int) -> list[float]:
        waits = schedule_precedence(
            schedule,
            pipeline_parallel_degree=degree,
            virtual_pipeline_degree=virtual_pipeline_degree,
            micro_batch_count=micro_batches,
            length=length,
        )
        return _finishes(waits, seconds, message_seconds)

    last = finish(count - left * length)
    if not left:
        return tuple(last)
    before = finish(count - (left + 1) * length)
    busy = [0.0] * degree
    for index, stage in enumerate(seconds):
        rank = rank_of_virtual_stage(schedule, pipeline_parallel_degree=degree, virtual_stage=index)
        busy[rank] += length * stage.total
    return tuple(
        end + left * max(end - start, own)
        for end, start, own in zip(last, before, busy, strict=True)
    )


def _timeline(spans: list[Span], order: Order) -> RankTimeline:
    return RankTimeline(
        spans=tuple(spans),
        finish_seconds=spans[-1].end_seconds if spans else 0.0,
        busy_seconds=sum(span.end_seconds - span.start_seconds for span in spans),
        peak_in_flight=most_held(order),
    )


def _finishes(
    waits: Precedence, seconds: Sequence[VirtualStageSeconds], message_seconds: Sequence[float]
) -> list[float]:
    """Return when each rank ends its last step."""
    _, ends = _times(waits, seconds, message_seconds)
    finishes = [0.0] * waits.rank_count
    for step, end in zip(waits.steps, ends, strict=True):
        finishes[step.rank] = end
    return finishes


def _times(
    waits: Precedence, seconds: Sequence[VirtualStageSeconds], message_seconds: Sequence[float]
) -> tuple[list[float], list[float]]:
    """Return when each step starts and ends."""
    durations = [part for stage in seconds for part in stage.by_kind()]
    delays = [*message_seconds, 0.0]  # the last is that of `HERE`
    free = [0.0] * waits.rank_count
    starts: list[float] = []
    ends: list[float] = []
    for rank, duration, wait, boundary in waits.steps:
        start = free[rank]
        if wait != NO_WAIT:
            arrival = ends[wait] + delays[boundary]
            if arrival > start:  # noqa: PLR1730 - max() takes twice as long in the innermost loop
                start = arrival
        end = free[rank] = start + durations[duration]
        starts.append(start)
        ends.append(end)
    return starts, ends
