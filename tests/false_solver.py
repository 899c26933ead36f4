"""False solver: HiGHS as it is where it is wrong."""

from __future__ import annotations

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
