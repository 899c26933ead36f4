"""The best plan of the patterns of ranks, where it is all but at the limit."""

from __future__ import annotations

import numpy as np

from planner.ilp.branch_and_bound import swept
from planner.ilp.cut_point_graph import RankMoves
from planner.ilp.problem import Effort
from planner.ilp.stage_patterns import Patterns

ZERO = np.zeros(1, dtype=np.int64)
ONLY_WAY = RankMoves(before=ZERO, after=ZERO, load=ZERO, starts=ZERO)


def a_pattern(fill: float, pace: float, end: float) -> Patterns:
    """The one pattern of a rank's one load."""
    return Patterns(
        load=ZERO,
        pace=np.array([pace]),
        fill=np.array([fill]),
        end=np.array([end]),
        counts=np.ones((1, 1), dtype=np.int64),
    )


def test_a_plan_that_is_below_the_limit_by_less_than_rounding_is_found() -> None:
    """S + rho T + U < limit does not say in floats that U <= limit - S - rho T."""
    numbers = np.random.default_rng(0)
    rounded = 0
    for fill, pace, end in numbers.random((5000, 3)).tolist():
        below = float(np.nextafter(fill + 7.0 * pace + end, np.inf))
        rounded += end > below - fill - 7.0 * pace
        best = swept(
            [ONLY_WAY],
            [a_pattern(fill, pace, end)],
            load_counts=[1],
            repeat_count=7.0,
            below=below,
            effort=Effort(),
        )
        assert best is not None
        assert best.rows == (0,)
    assert rounded > 10
