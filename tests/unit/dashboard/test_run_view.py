"""A run on its page: measured beside predicted."""

from datetime import UTC, datetime

import pytest

from api.dashboard.run_form import RunForm, run_request
from api.dashboard.run_view import run_view, slowest_ranks
from planner.errors import InputError
from planner.schema.plan import Interval
from planner.schema.run import MeasuredStep, MeasuredSummary, PredictedRun, Run, RunMetrics


def a_step(step, seconds, *, rank=0, attempt=1, loss=None):
    return MeasuredStep(rank=rank, step=step, step_seconds=seconds, attempt=attempt, loss=loss)


def a_measured_run(*rows, median=1.5, **changes):
    """A running run that is predicted to take a second a step."""
    fields = {
        "id": "run-1",
        "state": "running",
        "plan_id": "plan-a",
        "first_plan_id": "plan-a",
        "command": "train",
        "arguments": {},
        "restart_limit": 3,
        "restart_count": 0,
        "replan": True,
        "epoch": 1,
        "attempt": 1,
        "cancel_requested": False,
        "created_at": datetime(2026, 11, 21, tzinfo=UTC),
    }
    predicted = PredictedRun(
        plan_id="plan-a",
        from_attempt=1,
        step_seconds=Interval(p10=0.9, p50=1.0, p90=1.2),
        tokens_per_second=2000.0,
        peak_memory_bytes=(2.0e9, 3.0e9),
    )
    measured = MeasuredSummary(
        attempt=1,
        step_count=2,
        median_step_seconds=median,
        median_tokens_per_second=1500.0,
        last_loss=3.5,
        peak_memory_bytes=(2.4e9, None),
        step_seconds_ratio=1.5,
    )
    metrics = RunMetrics(predicted=(predicted,), measured=measured, items=rows, next_cursor="")
    return run_view(Run(**{**fields, **changes}), (), metrics)


def test_the_slowest_rank_of_a_step_counts_with_the_loss_of_any():
    rows = [a_step(1, 1.0, loss=4.0), a_step(1, 1.4, rank=1), a_step(2, 1.1)]
    found = slowest_ranks(rows)
    assert [(row.step, row.step_seconds, row.loss) for row in found] == [
        (1, 1.4, 4.0),
        (2, 1.1, None),
    ]


def test_measured_stands_beside_predicted_with_its_ratio():
    beside = a_measured_run(a_step(1, 1.5)).beside
    assert [(row.label, row.ratio) for row in beside] == [
        ("Step (median)", "1.50"),
        ("Tokens/s", "0.75"),
        ("Peak memory", "0.80"),
    ]


def test_a_step_outside_of_its_interval_is_said_with_the_interval():
    assert a_measured_run(a_step(1, 1.5)).outside == (
        "The measured step of 1.5 s is longer than the predicted interval of 900 ms to 1.2 s, "
        "which four of five runs are expected to keep."
    )


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"arguments": {"steps": 200}, "step": 18}, (200, "5 min")),
        ({"arguments": {"steps": 200}, "step": 200, "state": "succeeded"}, (200, None)),
        ({"arguments": {"steps": 10_000}, "step": 18}, (10_000, "4 h 10 min")),
        ({"arguments": {}, "step": 18}, (None, None)),
    ],
    ids=["182 steps of 1.5 s are left", "over", "9,982 are left", "nobody said how many"],
)
def test_steps_are_shown_of_how_many_and_how_long_the_others_take(changes, shown):
    view = a_measured_run(a_step(1, 1.5), **changes)
    assert (view.step_count, view.left) == shown


def test_a_run_that_has_not_timed_a_step_yet_says_nothing_of_its_time():
    view = a_measured_run(median=None, arguments={"steps": 200})
    assert (view.outside, view.left, view.step_count) == (None, None, 200)


def test_the_chart_has_the_prediction_as_lines_and_the_steps_as_points():
    data = a_measured_run(a_step(1, 1.5), a_step(2, 1.4)).step_figure["data"]
    assert [trace["name"] for trace in data] == [
        "predicted p10",
        "predicted p50",
        "predicted p90",
        "measured, attempt 1",
    ]
    assert data[3]["y"] == [1.5, 1.4]


def test_nothing_is_drawn_before_the_first_step():
    view = a_measured_run()
    assert (view.step_figure, view.loss_figure) == (None, None)


def test_arguments_are_lines_of_names_and_values():
    form = RunForm(arguments="steps=200\n\nname = first try\nfast=true\nrate=1e-3\nlimit=NaN")
    assert run_request("plan-a", form).arguments == {
        "steps": 200,
        "name": "first try",
        "fast": True,
        "rate": 0.001,
        "limit": "NaN",
    }


def test_a_box_that_is_not_ticked_means_no_replanning():
    assert run_request("plan-a", RunForm()).replan is False
    assert run_request("plan-a", RunForm(replan="yes")).replan is True


def test_a_line_without_a_value_is_refused():
    with pytest.raises(InputError, match="name=value"):
        run_request("plan-a", RunForm(arguments="steps"))
