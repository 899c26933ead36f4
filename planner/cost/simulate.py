"""Simulate: run a schedule's orders event by event.

A rank begins its next action as soon as it has finished the one before and the action's input is
there: a forward needs the forward of the virtual stage before, a backward its own forward and the
backward of the virtual stage after. Between ranks an input arrives `point_to_point_seconds` after
it was handed over; sending costs its rank nothing. What is ignored: ranks that share a link, and
collectives of data-parallel groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planner.cost.holdings import most_held
from planner.cost.orders import Action, ActionKind, Order


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualStageSeconds:
    """Seconds of one micro-batch in one virtual stage; recompute counts as input gradient."""

    forward: float
    input_gradient: float
    weight_gradient: float

    def of(self, kind: ActionKind) -> float:
        """Return the seconds of one action; a whole backward takes both gradients' time."""
        match kind:
            case ActionKind.FORWARD:
                return self.forward
            case ActionKind.INPUT_GRADIENT:
                return self.input_gradient
            case ActionKind.WEIGHT_GRADIENT:
                return self.weight_gradient
            case ActionKind.BACKWARD:
                return self.input_gradient + self.weight_gradient


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
    point_to_point_seconds: float = 0.0,
) -> Simulation:
    """Return when each rank runs each action of its order, `seconds` by virtual stage.

    Raises:
        ValueError: if the orders wait for one another for ever.
    """
    board = _Board(len(seconds), point_to_point_seconds)
    runs = [_RankRun(rank, order) for rank, order in enumerate(orders)]
    waiting = runs
    while waiting:
        moved = [run.advance(board, seconds) for run in waiting]
        if not any(moved):
            raise ValueError("the orders wait for one another for ever")
        waiting = [run for run in waiting if not run.is_done]
    return Simulation(ranks=tuple(run.timeline() for run in runs))


_Result = tuple[bool, int, int]


class _Board:
    """When results are there, by what they are: forward or gradient, virtual stage, micro-batch."""

    def __init__(self, virtual_stage_count: int, point_to_point_seconds: float) -> None:
        self._last = virtual_stage_count - 1
        self._point_to_point_seconds = point_to_point_seconds
        self._here: dict[_Result, tuple[int, float]] = {}
        self._sent: dict[_Result, float] = {}

    def arrival(self, action: Action, rank: int) -> float | None:
        """Return when the action's input is there, `None` while that is unknown."""
        stage, index = action.virtual_stage, action.micro_batch
        if action.kind is ActionKind.WEIGHT_GRADIENT:
            return 0.0
        if action.kind is ActionKind.FORWARD:
            return 0.0 if stage == 0 else self._when(rank, (True, stage - 1, index))
        if stage == self._last:
            return self._when(rank, (True, stage, index))
        return self._when(rank, (False, stage + 1, index))

    def finished(self, action: Action, rank: int, seconds: float) -> None:
        """Note that the action's result is there on its own rank."""
        self._here[_result(action)] = (rank, seconds)

    def sent(self, action: Action, seconds: float) -> None:
        """Note that the action's result has been handed over for other ranks."""
        self._sent[_result(action)] = seconds + self._point_to_point_seconds

    def _when(self, rank: int, result: _Result) -> float | None:
        if result not in self._here:
            return None
        maker, seconds = self._here[result]
        return seconds if maker == rank else self._sent.get(result)


def _result(action: Action) -> _Result:
    return (action.kind is ActionKind.FORWARD, action.virtual_stage, action.micro_batch)


class _RankRun:
    """One rank on its way through its order."""

    def __init__(self, rank: int, order: Order) -> None:
        self._rank = rank
        self._order = order
        self._spans: list[Span] = []
        self._now = 0.0

    @property
    def is_done(self) -> bool:
        """Return whether no action is left."""
        return len(self._spans) == len(self._order)

    def advance(self, board: _Board, seconds: Sequence[VirtualStageSeconds]) -> bool:
        """Run actions until one's input is unknown; return whether there was any to run."""
        before = len(self._spans)
        for action in self._order[before:]:
            arrival = board.arrival(action, self._rank)
            if arrival is None:
                break
            self._run(action, arrival, seconds[action.virtual_stage], board)
        return len(self._spans) > before

    def timeline(self) -> RankTimeline:
        """Return what the rank has done."""
        busy = sum(span.end_seconds - span.start_seconds for span in self._spans)
        return RankTimeline(
            spans=tuple(self._spans),
            finish_seconds=self._now,
            busy_seconds=busy,
            peak_in_flight=most_held(self._order),
        )

    def _run(
        self, action: Action, arrival: float, seconds: VirtualStageSeconds, board: _Board
    ) -> None:
        start = max(self._now, arrival)
        self._now = start + seconds.of(action.kind)
        self._spans.append(
            Span(rank=self._rank, action=action, start_seconds=start, end_seconds=self._now)
        )
        if action.kind is not ActionKind.WEIGHT_GRADIENT:
            board.finished(action, self._rank, self._now)
        self._hand_over(action, board)

    def _hand_over(self, action: Action, board: _Board) -> None:
        """Send the result, and before it that of the pair's first half."""
        if len(self._spans) > 1 and self._spans[-2].action.sends_with_next:
            board.sent(self._spans[-2].action, self._now)
        if not action.sends_with_next and action.kind is not ActionKind.WEIGHT_GRADIENT:
            board.sent(action, self._now)
