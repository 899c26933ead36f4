"""Every way a solve can end."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

from planner.errors import SolverError
from planner.ilp.formulation import Program, Variable
from planner.ilp.milp import Status, Within, solve
from tests.false_solver import says_infeasible, says_optimal


def a_knapsack(*, weight: float, count: int = 2) -> Program:
    """Minimise 3 x + 2 y with 2 x + y >= weight, whole and at most `count` each."""
    program = Program()
    x = program.add(Variable(name="x", upper=count, is_integer=True))
    y = program.add(Variable(name="y", upper=count, is_integer=True))
    program.objective = [(x, 3.0), (y, 2.0)]
    program.require("weight", [(x, 2.0), (y, 1.0)], ">=", weight)
    return program


def a_hard_program(size: int = 60) -> Program:
    """A market split: equal sums by halves, which no solver proves in a second."""
    numbers = np.random.default_rng(7)
    program = Program()
    columns = [program.add(Variable(name=f"x{i}", upper=1.0, is_integer=True)) for i in range(size)]
    for row in range(6):
        over = program.add(Variable(name=f"over{row}"))
        under = program.add(Variable(name=f"under{row}"))
        weights = [float(numbers.integers(1000)) for _ in columns]
        terms = [*zip(columns, weights, strict=True), (over, -1.0), (under, 1.0)]
        program.require(f"half{row}", terms, "==", float(sum(weights) // 2))
        program.objective += [(over, 1.0), (under, 1.0)]
    return program


def test_the_optimum_comes_with_values_in_the_programs_order() -> None:
    """Weight 3 of 4 from x (2 each) and one y: 3 + 2 = 5, against 6 for two x."""
    solution = solve(a_knapsack(weight=3.0), Within(10.0))
    assert solution.status is Status.OPTIMAL
    assert solution.values == pytest.approx((1.0, 1.0))


@pytest.mark.parametrize("seed", range(6))
def test_optima_that_differ_by_a_ten_millionth_are_told_apart(seed: int) -> None:
    """Five of fourteen things of nearly one cost, heavy enough together: tried one by one."""
    numbers = np.random.default_rng(seed)
    costs = 0.2 + 1e-7 * numbers.integers(0, 40, size=14)
    weights = numbers.integers(1, 50, size=14).astype(float)
    program = Program()
    columns = [program.add(Variable(name=f"x{i}", upper=1.0, is_integer=True)) for i in range(14)]
    program.objective = list(zip(columns, costs.tolist(), strict=True))
    program.require("five", [(column, 1.0) for column in columns], "==", 5.0)
    program.require("heavy", list(zip(columns, weights.tolist(), strict=True)), ">=", 150.0)
    sets = [list(chosen) for chosen in combinations(range(14), 5)]
    least = min(costs[chosen].sum() for chosen in sets if weights[chosen].sum() >= 150.0)
    solution = solve(program, Within(10.0))
    assert solution.status is Status.OPTIMAL
    assert costs @ np.round(solution.values) == pytest.approx(least, abs=1e-12)


def test_what_no_values_satisfy_is_infeasible() -> None:
    solution = solve(a_knapsack(weight=7.0), Within(10.0))
    assert solution.status is Status.INFEASIBLE
    assert solution.values == ()


def test_a_false_infeasible_is_found_out_and_the_optimum_is_found_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two of x do as well, at 6: any values that keep the rows are not enough."""
    says_infeasible(monkeypatch, 1)
    solution = solve(a_knapsack(weight=3.0), Within(10.0))
    assert (solution.status, solution.values) == (Status.OPTIMAL, pytest.approx((1.0, 1.0)))


def test_a_solver_that_contradicts_itself_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The eased program has a solution whatever the rows ask for."""
    says_infeasible(monkeypatch, 2)
    solution = solve(a_knapsack(weight=3.0), Within(10.0))
    assert (solution.status, solution.values) == (Status.FAILED, ())


def test_an_optimum_above_the_solver_s_own_bound_is_no_proof(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two of x cost 6, where one of each costs 5."""
    says_optimal(monkeypatch, (2.0, 0.0))
    solution = solve(a_knapsack(weight=3.0), Within(10.0))
    assert (solution.status, solution.values) == (Status.FEASIBLE, (2.0, 0.0))


def test_an_optimum_that_misses_a_row_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of x weighs 2 of 3."""
    says_optimal(monkeypatch, (1.0, 0.0))
    solution = solve(a_knapsack(weight=3.0), Within(10.0))
    assert (solution.status, solution.values) == (Status.FAILED, ())


def test_rows_are_eased_by_the_least_share_that_gives_them_values() -> None:
    """Two of each weigh 6 of 7: a seventh is lacking. Nothing is where three are asked for."""
    for weight, lacking in ((7.0, 1.0 / 7.0), (3.0, 0.0)):
        eased = a_knapsack(weight=weight).eased()
        solution = solve(eased, Within(10.0))
        assert solution.values[-1] == pytest.approx(lacking, abs=1e-9)


def test_equalities_are_eased_to_both_sides() -> None:
    """Five of whole twos lack one, a fifth of five."""
    program = Program()
    x = program.add(Variable(name="x", upper=9.0, is_integer=True))
    program.require("five", [(x, 2.0)], "==", 5.0)
    assert solve(program, Within(10.0)).status is Status.INFEASIBLE
    solution = solve(program.eased(), Within(10.0))
    assert solution.values[-1] == pytest.approx(1.0 / 5.0)


def test_a_program_without_end_is_a_bug_of_ours() -> None:
    program = Program()
    program.objective = [(program.add(Variable(name="x")), -1.0)]
    program.require("floor", program.objective, "<=", 5.0)
    with pytest.raises(SolverError):
        solve(program, Within(10.0))


def test_a_time_limit_is_not_called_proof() -> None:
    """PuLP reports "Optimal" all the same; only the solution's own status tells."""
    solution = solve(a_hard_program(), Within(1.0))
    assert solution.status in {Status.FEASIBLE, Status.LIMIT}


@pytest.mark.parametrize("seed", range(6))
def test_a_solver_that_is_stopped_says_what_no_solution_is_below(seed: int) -> None:
    """Twelve things of random costs and weights, of which all sets are tried."""
    numbers = np.random.default_rng(seed)
    costs, weights = numbers.uniform(1.0, 9.0, size=12), numbers.uniform(1.0, 9.0, size=(12, 3))
    program = Program()
    columns = [program.add(Variable(name=f"x{i}", upper=1.0, is_integer=True)) for i in range(12)]
    program.objective = list(zip(columns, costs.tolist(), strict=True))
    for row, own in enumerate(weights.T):
        heavy = list(zip(columns, own.tolist(), strict=True))
        program.require(f"heavy{row}", heavy, ">=", 0.6 * own.sum())
    sets = np.array(list(product((0, 1), repeat=12)))
    heavy_enough = (sets @ weights >= 0.6 * weights.sum(axis=0)).all(axis=1)
    least = float((sets[heavy_enough] @ costs).min())
    bounds = [solve(program, Within(10.0, looks=looks)).bound for looks in (3, 10_000)]
    assert all(0.5 * least < bound <= least * (1.0 + 1e-9) for bound in bounds)


def test_solves_share_what_they_may_take() -> None:
    """The first has all looks that there are, and none is left to the second."""
    within = Within(10.0, looks=3)
    solve(a_hard_program(), within)
    assert within.looks == 0
    assert 0.0 < within.seconds < 10.0
    again = solve(a_hard_program(), within)
    assert (again.status, again.values, again.bound) == (Status.LIMIT, (), -np.inf)


def test_no_time_at_all_is_a_limit_or_an_answer() -> None:
    solution = solve(a_hard_program(), Within(1e-3))
    assert solution.status is not Status.OPTIMAL
    assert solution.status is not Status.INFEASIBLE


def test_the_same_program_gives_the_same_values() -> None:
    first = solve(a_knapsack(weight=3.0), Within(10.0))
    assert solve(a_knapsack(weight=3.0), Within(10.0)) == first


def test_a_program_that_takes_longer_to_tell_than_there_is_time_is_not_begun() -> None:
    """Sixty thousand terms are not told in a hundredth of a second; with more time they are."""
    program = a_knapsack(weight=3.0)
    for row in range(30_000):
        program.require(f"again{row}", [(0, 2.0), (1, 1.0)], ">=", 3.0)
    assert solve(program, Within(0.01)).status is Status.LIMIT
    solution = solve(program, Within(60.0))
    assert (solution.status, solution.values) == (Status.OPTIMAL, (1.0, 1.0))


def test_values_above_what_is_enough_are_none() -> None:
    """The best of the knapsack costs what its own test says: one below that has none."""
    best = solve(a_knapsack(weight=3.0), Within(10.0))
    value = a_knapsack(weight=3.0).value(best.values)
    assert solve(a_knapsack(weight=3.0), Within(10.0), enough=value + 1e-9) == best
    below = solve(a_knapsack(weight=3.0), Within(10.0), enough=value - 0.01)
    assert (below.status, below.values) == (Status.INFEASIBLE, ())
