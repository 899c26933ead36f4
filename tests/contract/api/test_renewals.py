"""Leases on solves, analyses and searches: held by processes whose clocks are not one another's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from api.repositories.analyses import AnalysisRepository
from api.repositories.operations import OperationRepository
from api.repositories.plans import PlanRepository
from api.services.records import plan_row
from api.services.renewals import Renewals
from api.settings import Settings
from api.tables import AnalysisRow
from planner.planning import plan
from planner.requests.resolution import resolved_cluster, resolved_model
from planner.schema.job import Job
from tests.contract.api.callers import LOCAL
from tests.contract.api.test_operations import left_operation

LEASE_SECONDS = 30


@pytest.fixture
def app(make_app):
    return make_app(lease_seconds=LEASE_SECONDS)


class Looker:
    """What a process sees of leases, by a clock of its own, each quarter of a lease."""

    def __init__(self, *leased):
        self.now = 0.0
        settings = Settings(database_url="postgresql://elsewhere/db", lease_seconds=LEASE_SECONDS)
        self._renewals = Renewals(leased, settings, clock=lambda: self.now)

    def looks_on(self, *, seconds, meanwhile=lambda: None):
        """Look for so long; `meanwhile` is done after each look."""
        until = self.now + seconds
        while self.now <= until:
            self._renewals.keep()
            meanwhile()
            self.now += LEASE_SECONDS / 4


def state_of(database, operation_id):
    with database.reading() as session:
        return OperationRepository(session).get(operation_id).state


@pytest.mark.parametrize("ahead_seconds", [-3600, 3600])
def test_a_solve_that_nobody_renews_is_given_up_however_far_its_clock_was_off(
    app, database, ahead_seconds
):
    operation_id = left_operation(database, leased_for_seconds=ahead_seconds)
    looker = Looker(app.state.solves)

    looker.looks_on(seconds=LEASE_SECONDS - 10)
    before = state_of(database, operation_id)
    looker.looks_on(seconds=LEASE_SECONDS)

    assert (before, state_of(database, operation_id)) == ("running", "failed")


@pytest.mark.parametrize("step_seconds", [7.5, -3600.0])
def test_a_solve_that_another_process_renews_goes_on_however_its_clock_runs(
    app, database, step_seconds
):
    """Its clock is an hour behind, and goes on, or is set back an hour before each renewal."""
    operation_id = left_operation(database, leased_for_seconds=-3600)
    ends = [datetime.now(UTC) - timedelta(hours=1)]

    def renew():
        ends.append(ends[-1] + timedelta(seconds=step_seconds))
        with database.writing() as session:
            OperationRepository(session).renew_leases({operation_id}, until=ends[-1])

    Looker(app.state.solves).looks_on(seconds=20 * LEASE_SECONDS, meanwhile=renew)

    assert state_of(database, operation_id) == "running"


def test_a_solve_that_is_renewed_just_before_it_would_be_given_up_goes_on(app, database):
    operation_id = left_operation(database, leased_for_seconds=0)
    seen = app.state.solves.leases()[operation_id]
    with database.writing() as session:
        until = seen + timedelta(seconds=1)
        OperationRepository(session).renew_leases({operation_id}, until=until)

    app.state.solves.give_up(operation_id, seen)

    assert state_of(database, operation_id) == "running"


def left_analysis(database):
    """Store a plan, and a question about it that a service left which has died, in the future."""
    job = Job(global_batch_size=64, sequence_length=1024)
    made = plan(resolved_model("llama-3-8b"), resolved_cluster("8xh100-sxm5-80gb"), job)
    at = datetime.now(UTC) + timedelta(hours=1)
    row = AnalysisRow(
        project_id="default",
        plan_id=made.id,
        kind="frontier",
        asked="",
        state="running",
        created_at=at,
        expires_at=at + timedelta(hours=1),
    )
    with database.writing() as session:
        PlanRepository(session, "default").add(plan_row(made, request_digest=made.id))
        AnalysisRepository(session, "default").add(row)
    return made.id


def test_an_analysis_that_nobody_renews_fails_and_says_why(app, database):
    plan_id = left_analysis(database)
    analyses = app.state.services.analyses
    looker = Looker(analyses)

    looker.looks_on(seconds=LEASE_SECONDS - 10)
    before = analyses.document(LOCAL, plan_id, "frontier").state
    looker.looks_on(seconds=LEASE_SECONDS)

    after = analyses.document(LOCAL, plan_id, "frontier")
    assert (before, after.state) == ("running", "failed")
    assert after.problem.detail == "the service that worked on it stopped"
