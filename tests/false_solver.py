"""False solver: HiGHS as it is where it is wrong."""

from __future__ import annotations

from collections.abc import Sequence

import pulp
import pytest


def says_infeasible(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Let HiGHS call so many programs infeasible, whatever they are."""
    honest, left = pulp.HiGHS.actualSolve, iter(range(times))

    def solve_or_not(command: pulp.HiGHS, program: pulp.LpProblem) -> int:
        if next(left, None) is None:
            return honest(command, program)
        program.assignStatus(pulp.LpStatusInfeasible, pulp.LpSolutionInfeasible)
        return pulp.LpStatusInfeasible

    monkeypatch.setattr(pulp.HiGHS, "actualSolve", solve_or_not)


def says_optimal(monkeypatch: pytest.MonkeyPatch, values: Sequence[float]) -> None:
    """Let HiGHS call some values the optimum, while its bound is that of the true one."""
    honest = pulp.HiGHS.actualSolve

    def solve_and_lie(command: pulp.HiGHS, program: pulp.LpProblem) -> int:
        status = honest(command, program)
        for column, value in zip(program.variables(), values, strict=True):
            column.varValue = value
        return status

    monkeypatch.setattr(pulp.HiGHS, "actualSolve", solve_and_lie)
