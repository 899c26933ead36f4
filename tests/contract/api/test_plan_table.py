"""The table of plans, on both databases: sorted, searched, filtered and paged alike."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from api.caller import DEFAULT_PROJECT, Caller, Scope
from api.dashboard.plan_list import ListQuery
from api.dashboard.plan_tables import PlanTables
from api.repositories.plans import PlanRepository
from api.services.plan_table import PAGE_LENGTH, PlanTableService
from api.services.records import label, plan_row
from api.table_query import SortField, TableQuery
from planner.schema.service import PlanLabels
from tests.builders import a_plan
from tests.contract.api.solvers import an_infeasible

CALLER = Caller(
    project_id=DEFAULT_PROJECT, name="reader", scopes=frozenset({Scope.READ}), key_id=None
)


class CountedTable(PlanTableService):
    """A table that counts how often a page of it is made."""

    made_count = 0

    def page(self, project_id, query, *, number):
        """Return the page, and count it."""
        self.made_count += 1
        return super().page(project_id, query, number=number)


FIGURES = sorted(set(get_args(SortField)) - {"created", "name", "model", "cluster"})


def store(database, *answers):
    """Keep answers as a solve does; the last is the newest."""
    with database.writing() as session:
        plans = PlanRepository(session, DEFAULT_PROJECT)
        for answer in answers:
            plans.add(plan_row(answer, request_digest=answer.id))


def shown(database, *, number=1, **query):
    """Return the ids on a page of the table."""
    page = PlanTableService(database).page(DEFAULT_PROJECT, TableQuery(**query), number=number)
    return [plan.id for plan in page.plans]


def scaled_plan(plan, name, factor):
    """Return `plan` under another id, whose every figure of the table is `factor` times as high."""
    found = plan.prediction
    step = found.step_seconds
    scaled = {
        name: getattr(found, name) * factor
        for name in ("tokens_per_second_per_device", "model_flop_utilization")
    }
    stages = tuple(
        stage.model_copy(update={"peak_memory_bytes": stage.peak_memory_bytes * factor})
        for stage in found.stages
    )
    changed = found.model_copy(
        update={
            **scaled,
            "stages": stages,
            "step_seconds": step.model_copy(update={"p50": step.p50 * factor}),
            "cost_per_million_tokens": 3.0 * factor,
        }
    )
    return plan.model_copy(update={"id": name, "prediction": changed})


@pytest.fixture
def stocked(database):
    """A database with three plans, made in another order than their figures have, and a refusal."""
    plan = a_plan()
    store(
        database,
        scaled_plan(plan, "plan-middle", 0.5),
        an_infeasible(id="infeasible-1"),
        scaled_plan(plan, "plan-high", 0.75),
        scaled_plan(plan, "plan-low", 0.25),
    )
    return database


@pytest.mark.parametrize("figure", FIGURES)
def test_what_has_no_figure_comes_last_in_either_order(stocked, figure):
    up = shown(stocked, sort=figure, descending=False)
    down = shown(stocked, sort=figure, descending=True)

    assert up == ["plan-low", "plan-middle", "plan-high", "infeasible-1"]
    assert down == ["plan-high", "plan-middle", "plan-low", "infeasible-1"]


def test_equal_names_are_in_the_order_of_their_making(stocked):
    made = ["plan-middle", "infeasible-1", "plan-high", "plan-low"]

    for column in ("created", "name", "model", "cluster"):
        assert shown(stocked, sort=column, descending=False) == made
        assert shown(stocked, sort=column, descending=True) == made[::-1]


def test_names_that_users_gave_are_sorted_before_models_in_any_case(database):
    """A plan without a name stands where the name of its model does, which the list shows."""
    plan = a_plan()  # of the model "tiny"
    store(database, *(plan.model_copy(update={"id": name}) for name in ("p-1", "p-2", "p-3")))
    with database.writing() as session:
        plans = PlanRepository(session, DEFAULT_PROJECT)
        label(plans.get("p-1"), PlanLabels(name="Zebra"))
        label(plans.get("p-3"), PlanLabels(name="abacus"))

    assert shown(database, sort="name", descending=False) == ["p-3", "p-2", "p-1"]
    assert shown(database, sort="name", descending=True) == ["p-1", "p-2", "p-3"]


@pytest.mark.parametrize("text", ["PLAN-LOW", "low plan", "  plan-low "])
def test_words_are_found_in_any_case_and_order(stocked, text):
    assert shown(stocked, text=text) == ["plan-low"]


@pytest.mark.parametrize("text", ["%", "_____", "\\", "plan%low", "' OR 1=1 --"])
def test_what_means_something_to_a_database_is_text(stocked, text):
    assert shown(stocked, text=text) == []


def test_states_are_told_apart(stocked):
    assert shown(stocked, status="infeasible") == ["infeasible-1"]
    assert len(shown(stocked, status="planned")) == 3


def test_pages_hold_every_plan_once(database):
    plan = a_plan()
    names = [f"plan-{number:03d}" for number in range(PAGE_LENGTH + 3)]
    store(database, *(plan.model_copy(update={"id": name}) for name in names))

    pages = [shown(database, number=number, sort="step_seconds") for number in (1, 2)]

    assert [len(page) for page in pages] == [PAGE_LENGTH, 3]
    assert sorted(pages[0] + pages[1]) == names
    assert shown(database, number=9) == shown(database, number=2)


def test_a_page_of_the_table_is_made_anew_only_once_plans_changed(database):
    plan = a_plan()
    counted = CountedTable(database)
    tables = PlanTables(counted)
    store(database, plan)

    first = tables.shown(CALLER, ListQuery())
    assert tables.shown(CALLER, ListQuery()) == first
    assert tables.shown(CALLER, ListQuery(status="infeasible")) != first
    assert counted.made_count == 2

    with database.writing() as session:
        plans = PlanRepository(session, DEFAULT_PROJECT)
        row = plans.locked(plan.id)
        label(row, PlanLabels(name="The first", notes="", tags=()))
        plans.tag(plan.id, ())
    assert "The first" in tables.shown(CALLER, ListQuery())

    store(database, scaled_plan(plan, "plan-second", 2.0))
    assert "/plans/plan-second" in tables.shown(CALLER, ListQuery())

    with database.writing() as session:
        assert PlanRepository(session, DEFAULT_PROJECT).delete("plan-second")
    assert "/plans/plan-second" not in tables.shown(CALLER, ListQuery())
    assert counted.made_count == 5


def test_projects_see_the_tables_of_their_own(database):
    plan = a_plan()
    tables = PlanTables(PlanTableService(database))
    store(database, plan)
    stranger = replace(CALLER, project_id="theirs")

    assert f"/plans/{plan.id}" in tables.shown(CALLER, ListQuery())
    assert f"/plans/{plan.id}" not in tables.shown(stranger, ListQuery())
