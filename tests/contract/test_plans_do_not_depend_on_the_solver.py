"""The same request gives the same plan, whichever solver proves it."""

from __future__ import annotations

import pytest

from planner.ilp.milp import SolverName, available_solvers
from planner.ilp.problem import Found
from planner.ilp.search import search
from tests.draws import drawn
from tests.small_jobs import small_problem

# Jobs with ranks that neither set the pace nor the end, and so with many plans of one step.
WITH_TIES = (51, 426, 446, 1119)
# Jobs whose proof takes longer than a test may: the time limit, and not the jobs, would decide.
TOO_LONG = {6, 24}
WITHOUT = sorted(set(drawn(range(30), one_of=3)) - TOO_LONG)


@pytest.mark.slow
@pytest.mark.skipif(len(available_solvers()) < 2, reason="one solver alone is installed")
@pytest.mark.parametrize("seed", [*WITH_TIES, *WITHOUT])
def test_both_solvers_give_the_same_proven_plan(seed: int) -> None:
    found = [search(small_problem(seed), solver=solver) for solver in SolverName]
    plans = [answer for answer in found if isinstance(answer, Found)]
    assert all(plan.certificate.status == "optimal" for plan in plans)
    assert len(plans) in {0, 2}
    if plans:
        assert plans[0].strategy == plans[1].strategy


@pytest.mark.skipif(len(available_solvers()) < 2, reason="one solver alone is installed")
def test_both_solvers_prove_the_same_where_virtual_stages_hold_unalike() -> None:
    """Virtual stages of a rank hold one or two blocks, and programs prove it."""
    found = [search(small_problem(66), solver=solver) for solver in SolverName]
    first, second = (answer for answer in found if isinstance(answer, Found))
    assert first.certificate.status == second.certificate.status == "optimal"
    assert first.certificate.milp_count > 0
    assert first.step_seconds == pytest.approx(second.step_seconds, rel=1e-9)
    assert first.strategy == second.strategy
