"""Hypothesis strategies of the project."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from planner.ilp.instance import Instance, Run, undominated

SECONDS = st.integers(1, 40).map(lambda tenths: tenths / 10)
BYTES = st.integers(0, 30).map(float)


@st.composite
def runs(draw: st.DrawFn, *, count: int, pinned_stage: int | None, choices: int) -> Run:
    """A run of `count` layers with random numbers for each of `choices` choices."""

    def column(values: st.SearchStrategy[float]) -> np.ndarray:
        return np.array([draw(values) for _ in range(choices)])

    return Run(
        count=count,
        pinned_stage=pinned_stage,
        pace=column(SECONDS),
        end=column(SECONDS),
        static=column(BYTES),
        activation=column(BYTES),
        transient=column(BYTES),
        host=column(BYTES),
        choice=tuple(range(choices)),
    )


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    """An instance small enough to be enumerated: up to 3 stages, 4 blocks in 1 or 2 runs."""
    stages = draw(st.integers(1, 3))
    counts = draw(
        st.lists(st.integers(1, 3), min_size=1, max_size=2).filter(lambda c: stages <= sum(c) <= 4)
    )
    micro_batches = draw(st.integers(1, 6))
    gpipe = draw(st.booleans())
    flight = tuple(
        micro_batches if gpipe else min(micro_batches, stages - r) for r in range(stages)
    )
    held = [draw(runs(count=1, pinned_stage=0, choices=draw(st.integers(1, 2))))]
    held += [
        draw(runs(count=c, pinned_stage=None, choices=draw(st.integers(1, 3)))) for c in counts
    ]
    held.append(draw(runs(count=1, pinned_stage=stages - 1, choices=draw(st.integers(1, 2)))))
    return Instance(
        micro_batch_count=micro_batches,
        in_flight=flight,
        stage_pace=np.array([draw(SECONDS) for _ in range(stages)]),
        stage_bytes=np.array([draw(BYTES) for _ in range(stages)]),
        stage_end=draw(SECONDS),
        capacity_bytes=float(draw(st.integers(20, 400))),
        host_capacity_bytes=float(draw(st.integers(10, 120))),
        runs=tuple(held),
    )


def without_dominated(run: Run, flights: tuple[int, int]) -> Run:
    """The run with its dominated choices dropped."""
    columns = np.stack(
        [
            run.pace,
            run.end,
            run.memory(flights[0]),
            run.memory(flights[1]),
            run.transient,
            run.host,
        ]
    )
    kept = undominated(columns)
    return Run(
        count=run.count,
        pinned_stage=run.pinned_stage,
        pace=run.pace[kept],
        end=run.end[kept],
        static=run.static[kept],
        activation=run.activation[kept],
        transient=run.transient[kept],
        host=run.host[kept],
        choice=tuple(int(i) for i in kept),
    )
