"""Charts: plain figures whose numbers are the plan's."""

import json

import pytest

from api.dashboard.charts import memory_bars, step_bars, step_waterfall, time_scale
from planner.schema.plan import MemoryBreakdown, StepBreakdown
from planner.units import GIB
from tests.builders import a_prediction, a_stage_prediction


def a_breakdown(**changes: float) -> StepBreakdown:
    """Two seconds of compute and half a second of bubble."""
    nothing = dict.fromkeys(StepBreakdown.model_fields, 0.0)
    return StepBreakdown(**{**nothing, "compute": 2.0, "bubble": 0.5, **changes})


def a_memory(**changes: float) -> MemoryBreakdown:
    nothing = dict.fromkeys(MemoryBreakdown.model_fields, 0.0)
    return MemoryBreakdown(**{**nothing, **changes})


def test_waterfall_starts_each_cause_where_the_last_one_ended():
    bars = step_waterfall(a_breakdown(optimizer=0.25))["data"][0]
    assert bars["y"] == ["Compute", "Bubble", "Optimizer", "Step"]
    assert bars["base"] == [0.0, 2.0, 2.5, 0.0]
    assert bars["x"] == [2.0, 0.5, 0.25, 2.75]


def test_waterfall_leaves_out_causes_that_take_no_time():
    assert "Recompute" not in step_waterfall(a_breakdown())["data"][0]["y"]


def test_waterfall_says_each_time_with_unit_and_share():
    texts = [note["text"] for note in step_waterfall(a_breakdown())["layout"]["annotations"]]
    assert texts == ["2 s · 80.0%", "500 ms · 20.0%", "2.5 s · 100.0%"]


def test_waterfall_of_a_step_without_time_is_drawn_all_the_same():
    figure = step_waterfall(a_breakdown(compute=0.0, bubble=0.0))
    assert figure["data"][0]["x"] == [0.0]
    assert figure["layout"]["xaxis"]["range"] == [0, 1]


def test_short_steps_are_drawn_in_milliseconds():
    figure = step_waterfall(a_breakdown(compute=0.02, bubble=0.005))
    assert figure["data"][0]["x"] == pytest.approx([20.0, 5.0, 25.0])
    assert figure["layout"]["xaxis"]["title"]["text"] == "Time (ms)"


@pytest.mark.parametrize(
    ("seconds", "unit"), [(3.0, "s"), (1.0, "s"), (0.9, "ms"), (1e-5, "µs"), (0.0, "µs")]
)
def test_unit_of_time_suits_its_length(seconds, unit):
    assert time_scale(seconds)[1] == unit


def test_steps_of_several_plans_share_one_scale():
    figure = step_bars([("Plan A", a_breakdown()), ("Plan B", a_breakdown(compute=4.0))])
    compute = figure["data"][0]
    assert (compute["y"], compute["x"]) == (["Plan A", "Plan B"], [2.0, 4.0])
    assert figure["layout"]["xaxis"]["range"][1] == pytest.approx(4.5 * 1.04)


def test_a_cause_of_one_plan_only_is_drawn_for_all():
    figure = step_bars([("Plan A", a_breakdown()), ("Plan B", a_breakdown(recompute=1.0))])
    found = {bars["name"]: bars["x"] for bars in figure["data"]}
    assert found["Recompute"] == [0.0, 1.0]


def test_memory_bars_stack_gib_by_stage():
    first = a_stage_prediction(0, memory_bytes=a_memory(parameters=8 * GIB, logits=1 * GIB))
    second = a_stage_prediction(1, memory_bytes=a_memory(parameters=6 * GIB))
    found = {bars["name"]: bars["x"] for bars in memory_bars((first, second))["data"]}
    assert found == {"Parameters": [8.0, 6.0], "Logits": [1.0, 0.0]}


def test_memory_bars_mark_each_stages_own_capacity():
    stages = (
        a_stage_prediction(0, capacity_bytes=76.0 * GIB),
        a_stage_prediction(1, capacity_bytes=38.0 * GIB),
    )
    lines = memory_bars(stages)["layout"]["shapes"]
    assert [(line["x0"], line["x1"]) for line in lines] == [(76.0, 76.0), (38.0, 38.0)]
    assert [(line["y0"], line["y1"]) for line in lines] == [(-0.5, 0.5), (0.5, 1.5)]


def test_memory_bars_end_where_they_are_told():
    figure = memory_bars((a_stage_prediction(),), ceiling_bytes=100 * GIB)
    assert figure["layout"]["xaxis"]["range"] == pytest.approx([0, 104])


def test_memory_bars_show_a_peak_above_the_capacity():
    over = a_stage_prediction(peak_memory_bytes=200.0 * GIB)
    assert memory_bars((over,))["layout"]["xaxis"]["range"][1] > 200


def test_figures_are_plain_json():
    prediction = a_prediction()
    for figure in (
        step_waterfall(prediction.breakdown_seconds),
        step_bars([("Plan A", prediction.breakdown_seconds)]),
        memory_bars(prediction.stages),
    ):
        assert json.loads(json.dumps(figure, allow_nan=False)) == figure


def test_one_cause_has_one_colour_in_all_charts():
    waterfall = step_waterfall(a_breakdown())["data"][0]["marker"]["color"]
    stacked = [bars["marker"]["color"] for bars in step_bars([("A", a_breakdown())])["data"]]
    assert waterfall[:2] == stacked == ["var(--cause-compute)", "var(--cause-bubble)"]
