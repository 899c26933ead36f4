"""Precedence: what each action of a pipeline waits for, whatever the actions take.

A rank begins its next action as soon as it has finished the one before and the action's input is
there: a forward needs the forward of the virtual stage before, a backward its own forward and the
backward of the virtual stage after. What is waited for depends on the orders alone, so that one
precedence serves any number of simulations.
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
from planner.schema.strategy import PipelineSchedule

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
