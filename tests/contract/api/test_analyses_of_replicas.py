"""Analyses over one PostgreSQL: a replica ends what another works on."""

from __future__ import annotations

import time

import pytest

from api.caller import Caller, Scope
from api.repositories.plans import PlanRepository
from api.services.analyses import AnalysisService
from api.services.records import plan_row
from planner.errors import SolveCancelledError
from planner.planning import plan
from planner.requests.resolution import resolved_cluster, resolved_model
from planner.schema.job import Job

pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize(
        "database_kind", [pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True
    ),
]
CALLER = Caller(project_id="default", name="ada", scopes=frozenset(Scope), key_id=None)


@pytest.fixture
def plan_id(database):
    job = Job(global_batch_size=64, sequence_length=1024)
    made = plan(resolved_model("llama-3-8b"), resolved_cluster("8xh100-sxm5-80gb"), job)
    with database.writing() as session:
        PlanRepository(session, "default").add(plan_row(made, request_digest=made.id))
    return made.id


@pytest.fixture
def replica(make_app):
    """Make a replica: its pool, and its analyses."""
    made = []

    def make():
        app = make_app()
        made.append(app.state.pool)
        return app.state.pool, AnalysisService(app.state.database, app.state.pool, app.state.solves)

    yield make
    for pool in made:
        pool.shutdown(cancel_futures=True)


def test_an_analysis_cancelled_by_another_replica_ends_and_writes_nothing(replica, plan_id):
    """Its one process is busy when it is cancelled, so that it cannot have ended before."""
    pool, ours = replica()
    _, theirs = replica()
    busy = pool.submit(time.sleep, 600)
    ours.start(CALLER, plan_id, "frontier")
    (work,) = ours._at_work.values()
    assert [asked.state for asked in theirs.of_plan(CALLER, plan_id)] == ["running"]

    theirs.cancel(CALLER, plan_id, "frontier")
    pool.kill(busy)

    assert isinstance(work.answer.exception(), SolveCancelledError)
    assert ours.of_plan(CALLER, plan_id) == ()
