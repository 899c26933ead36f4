"""The fleet's runs beside their predictions: what is outside, and when that is a drift."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from api.dashboard.fleet_view import fleet_view
from api.dashboard.rendering import page
from api.services.fleet_history import FleetGroup, FleetRun, at_least_chance
from planner.calibration.report import learnt_plan, lessons, trusted
from planner.schema.job import Calibration
from tests.builders import a_plan
from tests.learnt_runs import a_learnt_run


def a_run(ratio: float, number: int = 0) -> FleetRun:
    """A run predicted to take 2 s a step, give or take a tenth."""
    return FleetRun(
        run_id=f"run-{number}",
        plan_id="plan-1",
        at=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=number),
        cluster="8xh100-sxm5-80gb",
        stack="torch",
        measured_seconds=2.0 * ratio,
        predicted_seconds=2.0,
        low_ratio=0.9,
        high_ratio=1.1,
    )


def a_group(*ratios: float) -> FleetGroup:
    """Runs with these ratios, the oldest first."""
    runs = tuple(a_run(ratio, number) for number, ratio in enumerate(ratios))
    return FleetGroup(cluster="8xh100-sxm5-80gb", stack="torch", runs=runs)


@pytest.mark.parametrize(
    ("count", "of", "chance"),
    [(0, 5, 1.0), (3, 3, 0.008), (2, 3, 0.104), (1, 1, 0.2), (2, 2, 0.04)],
)
def test_the_chance_of_so_many_outside(count: int, of: int, chance: float) -> None:
    """0.2^3, 0.2^3 + 3 x 0.2^2 x 0.8, ..."""
    assert at_least_chance(count, of=of) == pytest.approx(chance)


@pytest.mark.parametrize(
    ("ratios", "drifts"),
    [
        ((1.0, 1.05, 0.95), False),
        ((1.0, 1.3, 1.3), False),
        ((1.3, 1.3, 1.3), True),
        ((0.5, 0.5, 0.5, *[1.0] * 10), False),
        ((*[1.0] * 20, *[1.3] * 3), True),
        ((1.3, 1.3, 1.3, 1.0), False),
        ((1.3, 1.3), False),
    ],
    ids=["within", "two of three", "all", "long ago", "the newest", "not the last", "two alone"],
)
def test_a_drift_is_what_is_rare_among_the_newest_runs(
    ratios: tuple[float, ...], drifts: bool
) -> None:
    assert a_group(*ratios).has_drifted is drifts


def test_few_of_those_that_meet_their_predictions_are_said_to_drift() -> None:
    """All 1,024 outcomes of ten runs, each by its chance: 3.1 % of them."""
    alarms = 0.0
    for outside in product((False, True), repeat=10):
        if a_group(*(1.3 if each else 1.0 for each in outside)).has_drifted:
            alarms += 0.2 ** sum(outside) * 0.8 ** (10 - sum(outside))
    assert alarms == pytest.approx(0.0311, abs=5e-5)


def test_the_page_says_which_way_runs_drift_and_marks_those_outside() -> None:
    view = fleet_view([a_group(1.0, 1.4, 1.5, 1.4)])
    text = page("fleet.html", view=view, titles={"plan-1": "Nightly"}, least_runs=3).body.decode()

    said = "3 of the newest 3 runs are outside of their predicted intervals, most of them slower"
    assert said in text
    assert text.count('<span class="badge bad">outside</span>') == 3
    assert "2.8 s" in text
    assert "Nightly" in text
    colours = view.groups[0].figure["data"][1]["marker"]["color"]
    assert colours == ["var(--accent)", *["var(--bad)"] * 3]


@pytest.mark.parametrize(
    ("ratios", "shown"),
    [
        ((1.0,), ["2025-12-31T23:00:00+00:00", "2026-01-01T01:00:00+00:00"]),
        ((1.0,) * 11, ["2025-12-31T12:00:00+00:00", "2026-01-11T12:00:00+00:00"]),
    ],
    ids=["an hour about one", "a twentieth of ten days"],
)
def test_the_chart_has_room_beside_the_first_and_the_last_run(
    ratios: tuple[float, ...], shown: list[str]
) -> None:
    (group,) = fleet_view([a_group(*ratios)]).groups
    assert group.figure["layout"]["xaxis"]["range"] == shown


def test_the_page_says_how_rare_as_many_outside_are_where_that_is_no_drift() -> None:
    """2 of 3: 3 x 0.2^2 x 0.8 + 0.2^3 = 10.4 %."""
    (shown,) = fleet_view([a_group(1.0, 1.3, 1.3)]).groups
    assert shown.verdict == (
        "2 of the newest 3 runs are outside of their predicted intervals: if predictions hold, "
        "as many are in 10.4% of cases; below 2% it is a drift."
    )


def test_the_page_shows_what_runs_teach_before_and_after() -> None:
    """Five runs of one plan, all 1.3 times as long as predicted: each is known by the four others.

    Runs of so small a model differ by themselves as well, so that not all of it is taken as shared.
    """
    plan = a_plan()
    learnt = [learnt_plan(plan, measured_seconds=1.3) for _ in range(5)]
    found = lessons(trusted([run for run in learnt if run is not None]))
    group = replace(a_group(*[1.3] * 5), lessons=found)

    text = page("fleet.html", view=fleet_view([group]), titles={}, least_runs=3).body.decode()

    assert found.held_out is not None
    assert found.held_out.mean_before_ratio == pytest.approx(1.0 - 1.0 / 1.3)
    assert found.held_out.mean_after_ratio < found.held_out.mean_before_ratio / 3.0
    assert 1.2 < found.effects[0].factor < 1.3
    assert "23.1%" in text  # |1 / 1.3 - 1|
    assert "A calibration on them is accepted" in text


def test_a_plan_that_a_calibration_priced_teaches_nothing_more() -> None:
    plan = a_plan()
    ours = Calibration(name="ours", runs=(a_learnt_run(),))
    job = plan.job.model_copy(
        update={"resolved": plan.job.resolved.model_copy(update={"calibration": ours})}
    )
    calibrated = plan.model_copy(update={"job": job})
    assert learnt_plan(calibrated, measured_seconds=1.3) is None


def test_an_empty_fleet_says_how_runs_come_to_stand_here() -> None:
    text = page("fleet.html", view=fleet_view([]), titles={}, least_runs=3).body.decode()
    assert "No measured runs yet" in text
