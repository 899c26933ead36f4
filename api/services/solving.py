"""Solving: the planner, the processes that it runs in, and how many may wait for one."""

from __future__ import annotations

from dataclasses import dataclass

from api.services.planner import Planner
from api.services.solves import Solves
from planner.pools.solver_pool import SolverPool


@dataclass(frozen=True, slots=True, kw_only=True)
class Solving:
    """What a service needs that has searches of its own."""

    planner: Planner
    pool: SolverPool
    solves: Solves
