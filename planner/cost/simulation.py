"""Simulation: a whole strategy's step, its pipeline run event by event.

    step = max_r (finish_r + g_r) + max_r o_r    with clipping of gradients
    step = max_r (finish_r + g_r + o_r)          without

with finish_r when rank r ends its last backward in the simulation, each virtual stage taking its
own forward, input-gradient and weight-gradient seconds, g_r the gradient sync that is left then,
and o_r the optimiser's step, which under clipping cannot begin before all gradients are known. Each
boundary's messages take as long as its own link needs.

A rank begins its next action as soon as it has finished the one before and the action's input is
there: a forward needs the forward of the virtual stage before, a backward its own forward and the
backward of the virtual stage after. What is waited for depends on the orders alone, so that one
precedence serves any number of simulations.

Between ranks an input arrives a message's seconds after it was handed over; sending costs its rank
nothing but where `schedule.sending_share` has it busy. What is ignored: ranks that share a link,
and collectives of data-parallel groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from planner.cost.orders import (
    Action,
    ActionKind,
    Order,
    interleaved_order,
    interleaved_round,
    rank_orders,
)
from planner.cost.price_list import PricedStrategy
from planner.cost.schedule import most_held, rank_of_virtual_stage, sending_share
from planner.cost.stage import (
    StageTotals,
    VirtualStageSeconds,
    boundary_after,
    held_layers,
    virtual_stage_seconds,
)
from planner.schema.job import Job
from planner.schema.plan import SimulatedStage, SimulatedStep
from planner.schema.strategy import PipelineSchedule


def simulated_step(
    priced: PricedStrategy,
    totals: Sequence[StageTotals],
    *,
    path_ratio: float,
    job: Job,
    closed_form_seconds: float,
) -> SimulatedStep:
    """Return the step by simulation; `totals` are by pipeline rank.

    Ranks are simulated as if each had a device, and `path_ratio` of that time passes where they
    share cores, but for messages, which no idle core makes faster.

    Raises:
        ValueError: if there are more than `STAGES_MOST` virtual stages.
    """
    if len(priced.stages) > STAGES_MOST:
        raise ValueError(f"a pipeline of {len(priced.stages)} stages is too long to simulate")
    messages = [seconds / path_ratio for seconds in message_seconds(priced)]
    stages = virtual_stages(priced, messages)
    configuration = priced.prices.configuration
    alone = finish_seconds(
        configuration.pipeline_schedule,
        stages,
        pipeline_parallel_degree=configuration.pipeline_parallel_degree,
        virtual_pipeline_degree=configuration.virtual_pipeline_degree,
        micro_batch_count=configuration.micro_batch_count,
        message_seconds=_waited(priced, messages),
    )
    finishes = [path_ratio * finish for finish in alone]
    ends = [total.end_seconds for total in totals]
    step = _with_ends(finishes, totals, waits_for_all=job.prices_clipping)
    busy = [0.0] * len(totals)
    for index, stage in enumerate(stages):
        busy[priced.rank_of(index)] += path_ratio * configuration.micro_batch_count * stage.total
    idle = [max(step - b - end, 0.0) for b, end in zip(busy, ends, strict=True)]
    return SimulatedStep(
        step_seconds=step,
        closed_form_error_ratio=closed_form_seconds / step - 1.0 if step else 0.0,
        bubble_ratio=sum(idle) / (len(idle) * step) if step else 0.0,
        stages=tuple(
            SimulatedStage(stage=rank, busy_seconds=b, idle_seconds=i, step_end_seconds=end)
            for rank, (b, i, end) in enumerate(zip(busy, idle, ends, strict=True))
        ),
    )


def _with_ends(
    finishes: Sequence[float], totals: Sequence[StageTotals], *, waits_for_all: bool
) -> float:
    """Return when the last rank's step has ended, from when their last backwards have."""
    synced = [
        finish + total.step_end_seconds["data_parallel_exposed"]
        for finish, total in zip(finishes, totals, strict=True)
    ]
    updates = [
        total.end_seconds - total.step_end_seconds["data_parallel_exposed"] for total in totals
    ]
    if waits_for_all:
        return max(synced) + max(updates)
    return max(sync + update for sync, update in zip(synced, updates, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimeline:
    """What ranks run when in a step, of its first `shown_count` micro-batches."""

    spans: tuple[Span, ...]
    shown_count: int
    micro_batch_count: int


def step_timeline(priced: PricedStrategy, *, span_limit: int) -> StepTimeline:
    """Return a step without its end, with whole rounds left out until there are few spans."""
    configuration, count = (
        priced.prices.configuration,
        priced.prices.configuration.micro_batch_count,
    )
    degree = configuration.pipeline_parallel_degree
    length = round_length(configuration.pipeline_schedule, degree=degree, micro_batch_count=count)
    most = max(span_limit // (2 * len(priced.stages)), 2 * length)
    shown = count - max(-(-(count - most) // length), 0) * length
    waits = schedule_precedence(
        configuration.pipeline_schedule,
        pipeline_parallel_degree=degree,
        virtual_pipeline_degree=configuration.virtual_pipeline_degree,
        micro_batch_count=shown,
        length=length,
    )
    messages = message_seconds(priced)
    stages = virtual_stages(priced, messages)
    return StepTimeline(
        spans=tuple(spans_of(waits, stages, message_seconds=_waited(priced, messages))),
        shown_count=shown,
        micro_batch_count=count,
    )


def message_seconds(priced: PricedStrategy) -> list[float]:
    """Return the seconds of a message over each boundary of virtual stages, one way."""
    found = (boundary_after(index, priced, stage=index) for index in range(len(priced.stages) - 1))
    return [0.0 if boundary is None else boundary.seconds / 2.0 for boundary in found]


def virtual_stages(
    priced: PricedStrategy, messages: Sequence[float]
) -> tuple[VirtualStageSeconds, ...]:
    """Return each virtual stage's seconds, with those of its messages that keep its rank busy."""
    stages = [virtual_stage_seconds(held_layers(i, priced)) for i in range(len(priced.stages))]
    share = _sending_share(priced)
    around = [0.0, *(share * message for message in messages), 0.0]
    return tuple(
        VirtualStageSeconds(
            forward=stage.forward + around[index] + around[index + 1],
            input_gradient=stage.input_gradient + around[index] + around[index + 1],
            weight_gradient=stage.weight_gradient,
        )
        for index, stage in enumerate(stages)
    )


def _waited(priced: PricedStrategy, messages: Sequence[float]) -> list[float]:
    """Return what passes from the end of an action to when its message has come."""
    return [0.0 if _sending_share(priced) else message for message in messages]


def _sending_share(priced: PricedStrategy) -> float:
    shares_cores = priced.prices.hardware.lone_speed_ratio > 1.0
    return sending_share(priced.prices.stack, shares_cores=shares_cores)


KINDS = tuple(ActionKind)
_PLACES = {kind: place for place, kind in enumerate(KINDS)}
NO_WAIT = -1
HERE = -1


class Step(NamedTuple):
    """One action by places in lists.

    It runs on `rank` and takes the time at `duration` (virtual stage x 4 + kind, as in `KINDS`). It
    waits for the end of the step at `wait` (`NO_WAIT`: for nothing) and for a message over the
    boundary after virtual stage `boundary` (`HERE`: it was made on the same rank).
    """

    rank: int
    duration: int
    wait: int
    boundary: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Precedence:
    """The steps of all ranks, none before what it waits for, and their actions beside them."""

    rank_count: int
    steps: tuple[Step, ...]
    actions: tuple[Action, ...]


def precedence(orders: Sequence[Order]) -> Precedence:
    """Return what each action of the ranks' orders waits for.

    Raises:
        ValueError: if the orders wait for one another for ever.
    """
    board = _Board(orders)
    waiting = list(range(len(orders)))
    while waiting:
        moved = [board.advance(rank) for rank in waiting]
        if not any(moved):
            raise ValueError("the orders wait for one another for ever")
        waiting = [rank for rank in waiting if not board.is_done(rank)]
    return Precedence(
        rank_count=len(orders), steps=tuple(board.steps), actions=tuple(board.actions)
    )


def round_length(schedule: PipelineSchedule, *, degree: int, micro_batch_count: int) -> int:
    """Return after how many micro-batches a full pipeline does the same again.

    Raises:
        ValueError: as `planner.cost.orders.interleaved_round`.
    """
    if schedule is PipelineSchedule.INTERLEAVED:
        return interleaved_round(degree, micro_batch_count)
    return degree


@lru_cache(maxsize=32)
def schedule_precedence(
    schedule: PipelineSchedule,
    *,
    pipeline_parallel_degree: int,
    virtual_pipeline_degree: int,
    micro_batch_count: int,
    length: int,
) -> Precedence:
    """Return what the actions of a schedule wait for; `length` is that of interleaved rounds.

    Raises:
        ValueError: as `planner.cost.orders.rank_orders`.
    """
    degree = pipeline_parallel_degree
    if schedule is not PipelineSchedule.INTERLEAVED:
        return precedence(
            rank_orders(
                schedule,
                pipeline_parallel_degree=degree,
                virtual_pipeline_degree=virtual_pipeline_degree,
                micro_batch_count=micro_batch_count,
            )
        )
    return precedence(
        [
            interleaved_order(
                rank,
                degree,
                virtual_pipeline_degree=virtual_pipeline_degree,
                micro_batch_count=micro_batch_count,
                round_length=length,
            )
            for rank in range(degree)
        ]
    )


class _Board:
    """Places steps one after another, and knows which step's end makes a result available.

    A result is a number: that of its virtual stage and way, and its micro-batch. `_here` is for the
    rank that made it, `_sent` for all others: the end of the pair where an action's result is
    handed over with the next one's; `NO_WAIT` where there is none yet.
    """

    def __init__(self, orders: Sequence[Order]) -> None:
        self.steps: list[Step] = []
        self.actions: list[Action] = []
        self._orders = orders
        self._done = [0] * len(orders)
        self._last = max((a.virtual_stage for order in orders for a in order), default=0)
        self._count = max((a.micro_batch for order in orders for a in order), default=0) + 1
        self._here = [NO_WAIT] * (2 * (self._last + 1) * self._count)
        self._sent = self._here.copy()

    def is_done(self, rank: int) -> bool:
        """Return whether no action of the rank is left."""
        return self._done[rank] == len(self._orders[rank])

    def advance(self, rank: int) -> bool:
        """Place the rank's actions until one's input is unknown; return whether there was any."""
        order, before = self._orders[rank], self._done[rank]
        while self._done[rank] < len(order):
            waited = self._waited(order[self._done[rank]], rank)
            if waited is None:
                break
            self._place(order[self._done[rank]], rank, *waited)
        return self._done[rank] > before

    def _waited(self, action: Action, rank: int) -> tuple[int, int] | None:
        """Return what the action waits for and the boundary between, `None` while unknown."""
        kind, stage, index, _ = action
        if kind is ActionKind.WEIGHT_GRADIENT:
            return NO_WAIT, HERE
        if kind is ActionKind.FORWARD:
            if stage == 0:
                return NO_WAIT, HERE
            result, boundary = (2 * stage - 2) * self._count + index, stage - 1
        elif stage == self._last:
            result, boundary = 2 * stage * self._count + index, HERE
        else:
            result, boundary = (2 * stage + 3) * self._count + index, stage
        place = self._here[result]
        if place == NO_WAIT:
            return None
        if self.steps[place].rank == rank:
            return place, HERE
        sent = self._sent[result]
        return None if sent == NO_WAIT else (sent, boundary)

    def _place(self, action: Action, rank: int, wait: int, boundary: int) -> None:
        """Add the step, and send its result, and before it that of the pair's first half."""
        kind, stage, index, sends_with_next = action
        place, number = len(self.steps), self._done[rank]
        self.steps.append(Step(rank, stage * len(KINDS) + _PLACES[kind], wait, boundary))
        self.actions.append(action)
        self._done[rank] = number + 1
        if number and self._orders[rank][number - 1].sends_with_next:
            self._sent[self._result(self._orders[rank][number - 1])] = place
        if kind is ActionKind.WEIGHT_GRADIENT:
            return
        result = (2 * stage + (kind is not ActionKind.FORWARD)) * self._count + index
        self._here[result] = place
        if not sends_with_next:
            self._sent[result] = place

    def _result(self, action: Action) -> int:
        way = action.kind is not ActionKind.FORWARD
        return (2 * action.virtual_stage + way) * self._count + action.micro_batch


_ROUNDS_MOST, _ROUNDS_LEAST = 12, 3
"""Rounds of micro-batches that are run one by one; later ones repeat the last."""
_ACTIONS_MOST = 40_000
"""Fewer rounds are run where they would have more actions than these."""
STAGES_MOST = 256
"""Virtual stages of the longest pipeline that is simulated."""


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
    left = _rounds_left(count, length=length, stage_count=len(seconds))

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


def _rounds_left(micro_batch_count: int, *, length: int, stage_count: int) -> int:
    """Return how many rounds of micro-batches are not run one by one."""
    rounds = _ACTIONS_MOST // (2 * stage_count * length)
    rounds = min(max(rounds, _ROUNDS_LEAST), _ROUNDS_MOST)
    return max(-(-micro_batch_count // length) - rounds, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LongestPath:
    """What the rank that ends last waits for, back to the start of the step.

    `counts` [virtual stages][kinds] say how often an action of each of `KINDS` is on the path, and
    `seconds` how long it is, messages included. Whatever the durations are, no step is shorter than
    any path (Baccelli et al. 1992, Synchronization and Linearity, section 2.5).
    """

    counts: tuple[tuple[int, ...], ...]
    seconds: float


def longest_path(priced: PricedStrategy) -> LongestPath:
    """Return the longest path through the rounds that `finish_seconds` runs one by one."""
    configuration = priced.prices.configuration
    schedule, degree = configuration.pipeline_schedule, configuration.pipeline_parallel_degree
    count = configuration.micro_batch_count
    length = round_length(schedule, degree=degree, micro_batch_count=count)
    left = _rounds_left(count, length=length, stage_count=len(priced.stages))
    waits = schedule_precedence(
        schedule,
        pipeline_parallel_degree=degree,
        virtual_pipeline_degree=configuration.virtual_pipeline_degree,
        micro_batch_count=count - left * length,
        length=length,
    )
    messages = message_seconds(priced)
    seconds = virtual_stages(priced, messages)
    starts, ends = _times(waits, seconds, _waited(priced, messages))
    before, last = list[int](), [NO_WAIT] * waits.rank_count
    for place, step in enumerate(waits.steps):
        before.append(last[step.rank])
        last[step.rank] = place
    counts = [[0] * len(KINDS) for _ in seconds]
    end = place = max(last, key=ends.__getitem__)
    while place != NO_WAIT:
        step, own = waits.steps[place], before[place]
        stage, kind = divmod(step.duration, len(KINDS))
        counts[stage][kind] += 1
        place = own if own != NO_WAIT and ends[own] == starts[place] else step.wait
    return LongestPath(counts=tuple(map(tuple, counts)), seconds=ends[end])


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
