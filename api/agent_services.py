"""The services of agents and runs, put together around one database."""

from __future__ import annotations

from dataclasses import dataclass

from api.db import Database
from api.services.agents import AgentService
from api.services.gangs import Gangs
from api.services.growing import Growing
from api.services.leases import LeaseService
from api.services.limits import RateLimits
from api.services.plans import PlanService
from api.services.replanning import Replanning
from api.services.run_measurements import RunMeasurementService
from api.services.runs import RunService
from api.services.sweeper import Sweeper
from api.services.waiting import WaitingAgents
from api.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentServices:
    """The services of agents and runs of one application, and the thread that serves them."""

    agents: AgentService
    leases: LeaseService
    runs: RunService
    measurements: RunMeasurementService
    sweeper: Sweeper


def agent_services_of(
    database: Database, plans: PlanService, limits: RateLimits, settings: Settings
) -> AgentServices:
    """Return the services; their sweeper is not open yet."""
    waiting = WaitingAgents()
    gangs = Gangs(database, settings, woken=waiting.wake)
    replanning = Replanning(database, plans, settings)
    return AgentServices(
        agents=AgentService(database, settings, gangs, waiting, limits=limits),
        leases=LeaseService(database, settings),
        runs=RunService(database, gangs),
        measurements=RunMeasurementService(database),
        sweeper=Sweeper(
            database,
            gangs,
            replanning,
            waiting,
            growing=Growing(database, settings),
            settings=settings,
        ),
    )
