"""The services of agents and runs, put together around one database."""

from __future__ import annotations

from dataclasses import dataclass

from api.db import Database
from api.services.agents import AgentService
from api.services.fleet_history import FleetHistoryService
from api.services.gangs import Gangs
from api.services.growing import Growing
from api.services.leases import LeaseService
from api.services.limits import RateLimits
from api.services.plans import PlanService
from api.services.replanning import Replanning
from api.services.run_measurements import RunMeasurementService
from api.services.runs import RunService
from api.services.solving import Solving
from api.services.sweeper import Sweeper
from api.services.tuning_trials import TuningTrials
from api.services.tunings import TuningService
from api.services.waiting import WaitingAgents
from api.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentServices:
    """The services of agents, runs and tunings of one application, and the thread for them."""

    agents: AgentService
    leases: LeaseService
    runs: RunService
    measurements: RunMeasurementService
    history: FleetHistoryService
    tunings: TuningService
    trials: TuningTrials
    sweeper: Sweeper


def agent_services_of(
    database: Database,
    plans: PlanService,
    limits: RateLimits,
    settings: Settings,
    *,
    solving: Solving,
) -> AgentServices:
    """Return the services; their sweeper is not open yet."""
    waiting = WaitingAgents()
    gangs = Gangs(database, settings, woken=waiting.wake)
    replanning = Replanning(database, plans, settings)
    growing = Growing(database, settings)
    trials = TuningTrials(database, solving, gangs)
    return AgentServices(
        agents=AgentService(database, settings, gangs, waiting, limits=limits),
        leases=LeaseService(database, settings),
        runs=RunService(database, gangs),
        measurements=RunMeasurementService(database),
        history=FleetHistoryService(database),
        tunings=TuningService(database, solving, trials),
        trials=trials,
        sweeper=Sweeper(
            database,
            waiting,
            steps=(
                gangs.lease_queued_anew,
                replanning.advance_all,
                replanning.give_up_waiting,
                growing.look,
                trials.advance_all,
            ),
            settings=settings,
        ),
    )
