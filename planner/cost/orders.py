"""Orders: which forward or backward each rank of a pipeline runs next, schedule by schedule.

A rank runs its actions one after another, in a fixed order. The orders here are those that
`torch.distributed.pipelining` runs (2.13), in words of our own; a golden test holds them equal.

Source: Huang et al. 2019, arXiv:1811.06965 (GPipe); Narayanan et al. 2021, arXiv:2104.04473
section 2.2 (1F1B, interleaved); Qi et al. 2024, arXiv:2401.10241 section 6 (ZB-V); DeepSeek-AI
2024, arXiv:2412.19437 section 3.2.1, and its folding in two (DualPipeV).
"""

from __future__ import annotations

from collections import defaultdict, deque
from enum import StrEnum
from typing import NamedTuple

from planner.schema.strategy import PipelineSchedule


class ActionKind(StrEnum):
    """What is done to a micro-batch. A whole backward is both gradients in one."""

    FORWARD = "F"
    INPUT_GRADIENT = "I"
    WEIGHT_GRADIENT = "W"
    BACKWARD = "B"


class Action(NamedTuple):
    """One micro-batch through one virtual stage, one way.

    `sends_with_next` marks the first half of a pair that is handed over as one: other ranks have
    its result when the next action of its rank is done too.
    """

    kind: ActionKind
    virtual_stage: int
    micro_batch: int
    sends_with_next: bool = False


Order = tuple[Action, ...]


def rank_orders(
    schedule: PipelineSchedule,
    *,
    pipeline_parallel_degree: int,
    virtual_pipeline_degree: int,
    micro_batch_count: int,
) -> tuple[Order, ...]:
    """Return the order of every rank.

    `virtual_pipeline_degree` is read by the interleaved schedule alone: GPipe and 1F1B have one
    virtual stage on a rank, ZB-V and DualPipeV two.

    Raises:
        ValueError: if DualPipeV has fewer micro-batches than virtual stages, or the micro-batches
            of the interleaved schedule do not divide into rounds.
    """
    return tuple(
        rank_order(
            schedule,
            pipeline_parallel_degree=pipeline_parallel_degree,
            virtual_pipeline_degree=virtual_pipeline_degree,
            micro_batch_count=micro_batch_count,
            rank=rank,
        )
        for rank in range(pipeline_parallel_degree)
    )


def rank_order(
    schedule: PipelineSchedule,
    *,
    pipeline_parallel_degree: int,
    virtual_pipeline_degree: int,
    micro_batch_count: int,
    rank: int,
) -> Order:
    """Return the order of one rank; see `rank_orders`."""
    degree, count = pipeline_parallel_degree, micro_batch_count
    match schedule:
        case PipelineSchedule.GPIPE:
            return _gpipe(rank, count)
        case PipelineSchedule.ONE_F_ONE_B:
            return _one_f_one_b(rank, degree, count)
        case PipelineSchedule.INTERLEAVED:
            return interleaved_order(
                rank,
                degree,
                virtual_pipeline_degree=virtual_pipeline_degree,
                micro_batch_count=count,
                round_length=interleaved_round(degree, count),
            )
        case PipelineSchedule.ZB_V:
            return _zb_v(rank, degree, count)
        case PipelineSchedule.DUALPIPE_V:
            return _dualpipe_v(rank, degree, count)


def interleaved_round(pipeline_parallel_degree: int, micro_batch_count: int) -> int:
    """Return how many micro-batches a virtual stage runs before its rank turns to the next.

    There are max(1, floor(m / p)) rounds, of equal length.

    Raises:
        ValueError: if the rounds do not divide the micro-batches.
    """
    rounds = max(1, micro_batch_count // pipeline_parallel_degree)
    if micro_batch_count % rounds:
        raise ValueError(
            f"{micro_batch_count} micro-batches do not divide into {rounds} equal rounds"
        )
    return micro_batch_count // rounds


class _Writer:
    """Collects a rank's actions, each kind of each virtual stage taking micro-batches in turn."""

    def __init__(self) -> None:
        self._actions: list[Action] = []
        self._forwards: defaultdict[int, int] = defaultdict(int)
        self._backwards: defaultdict[int, int] = defaultdict(int)
        self._owed: deque[Action] = deque()

    def forward(self, virtual_stage: int) -> None:
        self._add(ActionKind.FORWARD, virtual_stage)

    def backward(self, virtual_stage: int) -> None:
        self._add(ActionKind.BACKWARD, virtual_stage)

    def input_gradient(self, virtual_stage: int) -> None:
        """Leave the weight gradient owed."""
        self._add(ActionKind.INPUT_GRADIENT, virtual_stage)
        self._owed.append(self._actions[-1]._replace(kind=ActionKind.WEIGHT_GRADIENT))

    def weight_gradient(self) -> None:
        """Pay the weight gradient that is owed longest, if any."""
        if self._owed:
            self._actions.append(self._owed.popleft())

    def weight_gradient_of(self, virtual_stage: int) -> None:
        """Pay the weight gradient that the virtual stage owes longest, if any."""
        for action in self._owed:
            if action.virtual_stage == virtual_stage:
                self._owed.remove(action)
                self._actions.append(action)
                return

    def pair(self, forward_stage: int, backward_stage: int) -> None:
        """Run a forward and a backward whose results are handed over together."""
        self.forward(forward_stage)
        self._actions[-1] = self._actions[-1]._replace(sends_with_next=True)
        self.backward(backward_stage)

    def order(self, micro_batch_count: int) -> Order:
        """Return what was collected, without micro-batches that do not exist."""
        return tuple(a for a in self._actions if a.micro_batch < micro_batch_count)

    def _add(self, kind: ActionKind, virtual_stage: int) -> None:
        """Add the action; both kinds of backward share one count of micro-batches."""
        counts = self._forwards if kind is ActionKind.FORWARD else self._backwards
        self._actions.append(Action(kind, virtual_stage, counts[virtual_stage]))
        counts[virtual_stage] += 1


def _gpipe(rank: int, count: int) -> Order:
    writer = _Writer()
    for _ in range(count):
        writer.forward(rank)
    for _ in range(count):
        writer.backward(rank)
    return writer.order(count)


def _one_f_one_b(rank: int, degree: int, count: int) -> Order:
    """Return forwards until the first gradient can come back, then backward and forward in turn."""
    writer = _Writer()
    ahead = min(count, degree - rank)
    for _ in range(ahead):
        writer.forward(rank)
    for _ in range(count - ahead):
        writer.backward(rank)
        writer.forward(rank)
    for _ in range(ahead):
        writer.backward(rank)
    return writer.order(count)


def interleaved_order(
    rank: int,
    degree: int,
    *,
    virtual_pipeline_degree: int,
    micro_batch_count: int,
    round_length: int,
) -> Order:
    """Return 1F1B over a rank's virtual stages, `round_length` micro-batches of each at a time.

    The first backward comes 2 (p - 1 - r) forwards after the first round has reached the rank's
    last virtual stage, r being the rank and p the degree.
    """
    writer = _Writer()
    local = virtual_pipeline_degree
    total = local * micro_batch_count
    ahead = min((local - 1) * round_length + 2 * (degree - 1 - rank), total)
    turns = [step // round_length % local for step in range(total)]
    forwards = [turn * degree + rank for turn in turns]
    backwards = [(local - 1 - turn) * degree + rank for turn in turns]
    for stage in forwards[:ahead]:
        writer.forward(stage)
    for forward_stage, backward_stage in zip(forwards[ahead:], backwards, strict=False):
        writer.forward(forward_stage)
        writer.backward(backward_stage)
    for stage in backwards[total - ahead :]:
        writer.backward(stage)
    return writer.order(micro_batch_count)


def _zb_v(rank: int, degree: int, count: int) -> Order:
    """Return the ZB-V order, `early` being the rank's way down the V and `late` the way up.

    It is written for a pipeline that fills (2 p - 1 micro-batches); with fewer, those that do not
    exist are left out.
    """
    writer = _Writer()
    early, late = rank, 2 * degree - 1 - rank
    _zb_v_fill(writer, early=early, late=late, rank=rank, degree=degree)
    for _ in range(max(0, count - (2 * degree - 1)) + rank):
        writer.forward(early)
        _split_backward(writer, early)
        writer.forward(late)
        _split_backward(writer, late)
    for _ in range(degree - 1 - rank):
        _split_backward(writer, early)
        writer.forward(late)
        _split_backward(writer, late)
    _zb_v_drain(writer, early=early, late=late, rank=rank, degree=degree)
    return writer.order(count)


def _zb_v_fill(writer: _Writer, *, early: int, late: int, rank: int, degree: int) -> None:
    for _ in range(2 * (degree - rank) - 1):
        writer.forward(early)
    for _ in range(rank):
        writer.forward(late)
        writer.forward(early)
    for _ in range(degree - rank):
        writer.forward(late)
        _split_backward(writer, late)


def _zb_v_drain(writer: _Writer, *, early: int, late: int, rank: int, degree: int) -> None:
    """Send gradients on first, and keep weight gradients for when nothing else is left."""
    for _ in range(rank):
        writer.input_gradient(early)
        writer.input_gradient(late)
    for _ in range(degree - rank):
        writer.input_gradient(early)
        writer.weight_gradient_of(early)
    for _ in range(rank):
        writer.weight_gradient_of(late)
    for _ in range(rank):
        writer.weight_gradient_of(early)


def _split_backward(writer: _Writer, virtual_stage: int) -> None:
    writer.input_gradient(virtual_stage)
    writer.weight_gradient_of(virtual_stage)


def _dualpipe_v(rank: int, degree: int, count: int) -> Order:
    if count < 2 * degree:
        raise ValueError(
            f"dualpipe_v needs at least {2 * degree} micro-batches on {degree} ranks, got {count}"
        )
    writer = _Writer()
    early, late = rank, 2 * degree - 1 - rank
    _dualpipe_v_fill(writer, early=early, late=late, rank=rank, degree=degree)
    for index in range(count - 2 * degree + rank + 1):
        if index == 0 and rank == degree - 1:
            writer.forward(early)
            writer.backward(late)
        else:
            writer.pair(early, late)
        writer.pair(late, early)
    for _ in range(degree - rank - 1):
        writer.backward(late)
        writer.pair(late, early)
    _dualpipe_v_drain(writer, early=early, late=late, rank=rank, degree=degree)
    return writer.order(count)


def _dualpipe_v_fill(writer: _Writer, *, early: int, late: int, rank: int, degree: int) -> None:
    for _ in range(2 * (degree - rank - 1)):
        writer.forward(early)
    for _ in range(rank + 1):
        writer.forward(early)
        writer.forward(late)
    for _ in range(degree - rank - 1):
        _split_backward(writer, late)
        writer.forward(late)


def _dualpipe_v_drain(writer: _Writer, *, early: int, late: int, rank: int, degree: int) -> None:
    """Run the last backwards: the second half split, its weight gradients kept for the gaps."""
    backwards = [late, early] * (rank + 1)
    # The half of 2 (r + 1) backwards, rounded to where torch turns: before a late one on odd
    # ranks, before an early one on even ones.
    split_from = 2 * ((rank + 1) // 2) + (0 if rank % 2 else 1)
    for index, stage in enumerate(backwards):
        (writer.backward if index < split_from else writer.input_gradient)(stage)
    for _ in range(degree - rank - 1):
        writer.weight_gradient()
        writer.input_gradient(early)
    for _ in range(rank + 1):
        writer.weight_gradient()
