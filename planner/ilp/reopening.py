"""Reopening: configurations whose best relaxed plan does not fit, to the end.

While ranks are searched, their virtual stages count as if they held alike. A configuration whose
best plan then does not fit with each counted by itself is left open (`State.leave_open`), with
its key as a bound. Once nothing else is left, programs that count virtual stages by themselves
(`planner.ilp.apart`) are solved for these: first with the loads of the plan that was refused, which
other choices and cuts often make fit at the same step, then with any, in turns that grow. Where
what is left open is next to nothing, each has one short turn of both.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from planner.ilp.apart import Moments
from planner.ilp.frontier import PROOF_TOLERANCE
from planner.ilp.offering import offer_apart
from planner.ilp.optimise import Optimum, optimise_apart
from planner.ilp.solver import Status, Within
from planner.ilp.state import State

_SAME_LOADS_NODES = 4000
_FIRST_NODES = 1000
_NODES_GROWTH = 4
_NEXT_TO_NOTHING = 2e-4


def reopen(state: State) -> None:
    """Look for the best plans of what was left open, until none matters or time is over."""
    left = _Left(state=state)
    for index in left.indices():
        if left.matters(index):
            left.look_at_same_loads(index)
    is_first = True
    while (is_first or left.is_much()) and (indices := left.indices()):
        for index in indices:
            if left.matters(index):
                left.look(index)
        left.nodes *= _NODES_GROWTH
        is_first = False


@dataclass(slots=True, kw_only=True)
class _Left:
    """What was left open and still matters; those that are `spent` tell no more."""

    state: State
    nodes: int = _FIRST_NODES
    spent: set[int] = field(default_factory=set)

    def indices(self) -> list[int]:
        """Return the configurations that may have a better plan, the least key first."""
        keys, left = self.state.frontier.keys, dict.fromkeys(self.state.frontier.left_open)
        return sorted(filter(self.matters, left), key=lambda index: (keys[index], index))

    def matters(self, index: int) -> bool:
        """Return whether a configuration may have a better plan, and there is time to look."""
        frontier = self.state.frontier
        is_below = frontier.keys[index] < frontier.limit_of(index) * (1.0 - PROOF_TOLERANCE)
        is_open = is_below and index not in self.spent and index in frontier.left_open
        is_enough = self.state.is_close_enough(frontier.least_left())
        return is_open and not is_enough and self.state.seconds_left > 0.0

    def is_much(self) -> bool:
        """Return whether the best plan may be more than next to nothing from the best there is."""
        frontier = self.state.frontier
        return frontier.least_left() < frontier.limit_seconds() * (1.0 - _NEXT_TO_NOTHING)

    def look_at_same_loads(self, index: int) -> None:
        """Look for plans whose ranks hold as much as in the plan that was refused."""
        nodes = _SAME_LOADS_NODES if self.is_much() else self.nodes
        self._solved(index, nodes, self.state.refused_cuts[index])

    def look(self, index: int) -> None:
        """Look for any plan; where there is none below the limit, or it is the best, close."""
        frontier, cutoff = self.state.frontier, self.state.frontier.limit_of(index)
        found, is_taken = self._solved(index, self.nodes, None)
        if found.status is Status.INFEASIBLE:
            frontier.close(index, cutoff)
        elif found.status is Status.OPTIMAL and found.step_seconds is not None and is_taken:
            frontier.close(index, found.step_seconds)

    def _solved(
        self, index: int, nodes: int, loads_at: tuple[int, ...] | None
    ) -> tuple[Optimum, bool]:
        """Return what a program says, and whether its plan fits, if there is one."""
        state = self.state
        instance, cutoff = state.pricing.instance_apart(index), state.frontier.limit_of(index)
        if instance.is_uniform:  # spread evenly, its blocks hold no more than alike
            self.spent.add(index)
            return Optimum(status=Status.LIMIT), False
        state.milp_count += 1
        found = optimise_apart(
            instance,
            Moments.of(state.configurations.row(index)),
            cutoff_seconds=cutoff if cutoff < float("inf") else None,
            solver=state.solver,
            within=Within(state.seconds_left, nodes),
            loads_at=loads_at,
        )
        if found.assignment is None:
            return found, True
        is_taken = offer_apart(state, index, instance, found.assignment)
        if not is_taken and loads_at is None:
            self.spent.add(index)
        return found, is_taken
