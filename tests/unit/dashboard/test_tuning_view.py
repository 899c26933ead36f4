"""The page of a tuning: its trials, its chart, and its certificate in words."""

from __future__ import annotations

import pytest

from api.dashboard.tuning_view import tuning_view
from api.services.tuning_records import keep, tuning_of
from api.tuning_schemas import TrialUnderWay
from planner.schema.plan import Interval
from tests.browser.seeds import a_finished_tuning, a_tuning_row


def ended():
    return tuning_of(a_tuning_row())


def under_way():
    """The same before its end, with a fifth trial that runs."""
    row = a_tuning_row()
    keep(row, a_finished_tuning().model_copy(update={"certificate": None}))
    row.state, row.finished_at, row.best_plan_id = "running", None, None
    row.under_way = TrialUnderWay(
        number=5,
        run_id="run-5",
        plan_id="plan-5",
        description="CP 2, DP 4",
        predicted=Interval(p10=0.95, p50=1.0, p90=1.05),
        fits_probability=0.96,
        optimistic_seconds=0.969,
    ).model_dump_json()
    return tuning_of(row)


def traces(view):
    return {trace["name"]: trace for trace in view.figure["data"]}


def test_each_trial_has_its_outcome_beside_its_prediction():
    view = tuning_view(ended())

    shown = [(row.number, row.outcome, row.measured_seconds, row.is_best) for row in view.trials]
    assert shown == [
        (1, "measured", 1.11, False),
        (2, "out of memory", None, False),
        (3, "failed", None, False),
        (4, "measured", 1.02, True),
    ]
    peaks = [(row.predicted_peak_bytes, row.peak_bytes) for row in view.trials]
    assert peaks[0] == (60.0 * 2**30, 63.5 * 2**30)
    assert peaks[1] == (60.0 * 2**30, None)
    assert view.best == view.trials[3]
    assert view.trials[1].reason == "CUDA out of memory"


def test_the_certificate_is_told_in_sentences():
    trials, best, claim = tuning_view(ended()).claims

    assert trials.startswith("4 trials: 2 measured, 1 out of memory, 1 failed")
    assert best.startswith("Best: trial 4, 1.02 s a step as measured")
    assert claim == (
        "No plan of 41,514 configurations has more than a 10% chance of being more than 2.1% "
        "faster than what was measured."
    )


def test_the_chart_has_intervals_measured_steps_the_best_so_far_and_the_bound():
    found = traces(tuning_view(ended()))

    assert found["predicted"]["x"] == [1, 2, 3, 4]
    assert found["predicted"]["error_y"]["arrayminus"] == pytest.approx([0.1, 0.092, 0.097, 0.105])
    assert (found["measured"]["x"], found["measured"]["y"]) == ([1, 4], [1.11, 1.02])
    assert found["best so far"]["x"] == [1, 4, 4.5]
    assert found["best so far"]["y"] == [1.11, 1.02, 1.02]
    assert found["nothing measured"]["x"] == [2, 3]
    assert found["bound so far"]["x"] == [0.5, 1, 2, 3, 4, 4.5]
    assert found["bound so far"]["y"] == [0.7, 0.91, 0.93, 0.93, 0.9986, 0.9986]


def test_a_trial_under_way_stands_last_with_its_prediction_alone():
    view = tuning_view(under_way())

    last = view.trials[-1]
    assert (last.number, last.outcome, last.run_id) == (5, "running", "run-5")
    assert not view.is_over
    assert view.phase == "Trial 5 is under way: CP 2, DP 4."
    found = traces(view)
    assert found["predicted"]["x"] == [1, 2, 3, 4, 5]
    assert found["measured"]["x"] == [1, 4]
    assert found["bound so far"]["x"] == [0.5, 1, 2, 3, 4, 5.5]
    assert found["bound so far"]["y"] == [0.7, 0.91, 0.93, 0.93, 0.969, 0.969]


def test_what_any_other_plan_may_be_faster_is_told_before_the_end_too():
    """0.969 s of the best 1.02 s; the certificate of the one that ended says 2.1 %."""
    assert tuning_view(under_way()).faster_ratio == pytest.approx(0.05)
    assert tuning_view(ended()).faster_ratio == 0.021


def test_a_tuning_of_before_bounds_were_kept_has_that_of_its_end_alone():
    row, tuning = a_tuning_row(), a_finished_tuning()
    trials = [trial.model_copy(update={"optimistic_seconds": None}) for trial in tuning.trials]
    keep(row, tuning.model_copy(update={"trials": tuple(trials)}))
    found = traces(tuning_view(tuning_of(row)))

    assert (found["bound so far"]["x"], found["bound so far"]["y"]) == ([4, 4.5], [0.9986, 0.9986])


def test_a_tuning_without_a_trial_says_that_it_looks_for_one():
    row = a_tuning_row()
    keep(row, a_finished_tuning().model_copy(update={"certificate": None, "trials": ()}))
    row.state = "running"
    view = tuning_view(tuning_of(row))

    assert (view.phase, view.figure) == ("Looking for what to try next.", None)
