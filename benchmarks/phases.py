"""Phases: where the planner's wall time goes, by looking at its stack every few milliseconds."""

from __future__ import annotations

import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SAMPLE_SECONDS = 0.02
OTHER = "other"
STEPS = {
    "planner.space.degrees:enumerate_configurations": "listing configurations",
    "planner.ilp.pricing:Pricing.quick_bounds": "quick bounds",
    "planner.ilp.pricing:Pricing.memory_bounds": "screens",
    "planner.ilp.pricing:Pricing.instance": "instances",
    "planner.ilp.pricing:Pricing.prepare": "instances",
    "planner.ilp.lagrangian_bound:objective_bounds": "bounds of one",
    "planner.ilp.construction_heuristic:heuristic_assignment": "heuristic plans",
    "planner.ilp.branch_and_bound:branching_of": "what ranks may hold",
    "planner.ilp.branch_and_bound:Branching.run": "branching",
    "planner.ilp.branch_and_bound:patterns_below": "patterns near a bound",
    "planner.ilp.branch_and_bound:swept": "patterns put together",
    "planner.ilp.cut_point_graph:Cutter.cuts": "cuts of certain loads",
    "planner.ilp.cut_point_graph:Cutter.is_never": "cuts of certain loads",
    "planner.ilp.stage_knapsack:least_cost_within": "packings",
    "planner.ilp.milp:optimise": "programs",
    "planner.requests.simplest_plan:simplest": "the simplest plan",
    "planner.cost.simulation:simulated_step": "simulations",
    "planner.cost.arrangement:arranged": "blocks moved to wait less",
    "planner.ilp.feasibility:fitted": "whether anything fits",
    "planner.ilp.incumbent:offer": "plans checked",
    "planner.ilp.canonical_plan:tidied": "the simplest of equal plans",
    "planner.answers.relaxation:smallest_relaxations": "relaxations",
    "planner.proof.verify:verify": "verification",
}
"""What functions of the planner do, in words, by `module:name`."""


@contextmanager
def sampled_phases() -> Iterator[Counter[str]]:
    """Fill a counter with seconds by phase while the block runs.

    A phase is the innermost of `STEPS` on the stack. A look is counted with all the time since the
    one before, so that native code that cannot be interrupted is charged to who called it. On
    systems without interval timers the counter stays empty.
    """
    seconds: Counter[str] = Counter()
    last = time.perf_counter()

    def look(_: int, frame: FrameType | None) -> None:
        nonlocal last
        now = time.perf_counter()
        seconds[phase_of(frame)] += now - last  # type: ignore[assignment]
        last = now

    if not hasattr(signal, "setitimer"):
        yield seconds
        return
    before = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, SAMPLE_SECONDS, SAMPLE_SECONDS)
    try:
        yield seconds
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
        look(0, sys._getframe())  # noqa: SLF001 - the only way to one's own stack


def phase_of(frame: FrameType | None) -> str:
    """Return in words what the innermost step of the planner on a stack does."""
    while frame is not None:
        name = f"{frame.f_globals.get('__name__')}:{frame.f_code.co_qualname}"
        if name in STEPS:
            return STEPS[name]
        frame = frame.f_back
    return OTHER
