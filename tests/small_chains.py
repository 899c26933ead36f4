"""Hypothesis strategies of small chains, tight enough in memory that choices and cuts matter.

All numbers are whole, so that a plan fills the memory exactly or misses it by at least one.
"""

from __future__ import annotations

from hypothesis import strategies as st

from planner.schema.strategy import PipelineSchedule
from tests.oracle import Chain, LayerOption, Options

_AMOUNT = st.integers(min_value=0, max_value=12)


def _options(choice_count: int) -> st.SearchStrategy[Options]:
    option = st.builds(
        LayerOption,
        pace=st.integers(min_value=1, max_value=12),
        end=_AMOUNT,
        static=_AMOUNT,
        activation=st.integers(min_value=0, max_value=5),
        transient=st.sampled_from([0, 1, 3, 8]),
        host=st.sampled_from([0, 0, 2, 5]),
    )
    return st.tuples(*[option] * choice_count)


@st.composite
def chain_shapes(draw: st.DrawFn) -> tuple[int, tuple[int, ...], int, int]:
    """Stages, layers of each run, choices of a block, choices of embedding and head."""
    stages = draw(st.integers(min_value=1, max_value=3))
    counts = draw(st.lists(st.integers(min_value=1, max_value=4), min_size=1, max_size=3))
    while sum(counts) > 6:
        counts[counts.index(max(counts))] -= 1
    counts[0] += max(stages - sum(counts), 0)
    return stages, tuple(counts), draw(st.integers(2, 4)), draw(st.integers(1, 2))


@st.composite
def chains(draw: st.DrawFn) -> Chain:
    """One small chain."""
    stages, counts, choice_count, edge_count = draw(chain_shapes())
    return draw(_chains_of(stages, counts, choice_count, edge_count))


@st.composite
def chain_families(draw: st.DrawFn) -> tuple[Chain, ...]:
    """Up to five configurations of one model on one cluster: same runs, choices and capacities."""
    _, counts, choice_count, edge_count = draw(chain_shapes())
    capacity = draw(st.integers(min_value=5, max_value=90))
    host_capacity = draw(st.sampled_from([0, 4, 1000]))
    rows = draw(st.integers(min_value=1, max_value=5))
    return tuple(
        draw(
            _chains_of(
                draw(st.integers(min_value=1, max_value=min(3, sum(counts)))),
                counts,
                choice_count,
                edge_count,
                capacity=st.just(capacity),
                host_capacity=st.just(host_capacity),
            )
        )
        for _ in range(rows)
    )


def _chains_of(
    stages: int,
    counts: tuple[int, ...],
    choice_count: int,
    edge_count: int,
    *,
    capacity: st.SearchStrategy[int] = st.integers(min_value=5, max_value=90),  # noqa: B008
    host_capacity: st.SearchStrategy[int] = st.sampled_from([0, 4, 1000]),  # noqa: B008
) -> st.SearchStrategy[Chain]:
    return st.builds(
        Chain,
        stage_count=st.just(stages),
        micro_batch_count=st.integers(min_value=1, max_value=5),
        schedule=st.sampled_from([PipelineSchedule.GPIPE, PipelineSchedule.ONE_F_ONE_B]),
        embedding=_options(edge_count),
        runs=st.tuples(*[st.tuples(st.just(n), _options(choice_count)) for n in counts]),
        head=_options(edge_count),
        boundary_pace=st.integers(min_value=0, max_value=2),
        boundary_bytes=st.integers(min_value=0, max_value=2),
        stage_end=st.integers(min_value=0, max_value=3),
        capacity=capacity,
        host_capacity=host_capacity,
    )
