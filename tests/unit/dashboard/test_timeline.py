"""The timeline of a pipeline on the plan's page."""

from __future__ import annotations

from typing import Any

import pytest

from api.dashboard import timeline
from api.dashboard.chrome_trace import chrome_trace
from api.dashboard.plan_view import plan_view
from api.dashboard.rendering import page
from api.dashboard.timeline import phases, timeline_view
from planner.cost.orders import Action, ActionKind
from planner.cost.simulation import Span
from planner.cost.step import predict_simulated
from planner.hardware import cluster_hardware
from planner.schema.plan import Plan
from planner.workload.model import model_workload
from tests.builders import a_cluster, a_job, a_model, a_plan, a_strategy
from tests.unit.dashboard.unlabelled import UNLABELLED


def a_pipeline(**strategy: Any) -> Plan:
    """The tiny model on two stages, as the planner prices it."""
    own = a_strategy(**strategy)
    prediction = predict_simulated(
        model_workload(a_model()), cluster_hardware(a_cluster()), a_job(), own
    )
    return a_plan(strategy=own, prediction=prediction)


def bars(plan: Plan) -> list[tuple[str, str, int]]:
    """Return the name, the row and the count of bars of each trace and row."""
    view = timeline_view(plan)
    assert view is not None
    return [
        (trace["name"], row, trace["y"].count(row))
        for trace in view.figure["data"]
        if trace["name"] != "Bubble"
        for row in ("Stage 0", "Stage 1")
    ]


def test_every_stage_has_a_bar_for_each_forward_and_backward() -> None:
    assert bars(a_pipeline()) == [
        ("Forward", "Stage 0", 8),
        ("Forward", "Stage 1", 8),
        ("Backward", "Stage 0", 8),
        ("Backward", "Stage 1", 8),
    ]


def test_weight_gradients_that_are_taken_apart_have_bars_of_their_own() -> None:
    """Two virtual stages on a rank: twice the bars."""
    shown = bars(a_pipeline(pipeline_schedule="zb_v"))
    assert ("Weight gradient", "Stage 1", 16) in shown


def test_long_steps_leave_out_rounds_in_the_middle() -> None:
    plan = a_pipeline(micro_batch_count=4096, data_parallel_shard_degree=2)
    view = timeline_view(plan)
    assert view is not None
    assert view.micro_batch_count == 4096
    assert view.shown_count == 374  # 1,500 spans of 2 stages, both ways, in whole rounds of two
    actions = [trace for trace in view.figure["data"] if trace["name"] != "Bubble"]
    assert sum(len(trace["x"]) for trace in actions) == 4 * 374


def a_span(kind: ActionKind, start: float, end: float) -> Span:
    """A span of the first rank."""
    action = Action(kind=kind, micro_batch=0, virtual_stage=0)
    return Span(rank=0, action=action, start_seconds=start, end_seconds=end)


def test_phases_are_first_forwards_then_turns_divided_by_waits_then_backwards() -> None:
    """A wait of 4 s of 20 divides the turns; one of 0.1 s does not, and is within a phase."""
    forward, backward = ActionKind.FORWARD, ActionKind.BACKWARD
    spans = [
        a_span(forward, 0.0, 1.0),
        a_span(forward, 1.1, 2.0),
        a_span(backward, 4.0, 6.0),
        a_span(forward, 6.0, 7.0),
        a_span(backward, 11.0, 13.0),
        a_span(forward, 13.0, 14.0),
        a_span(backward, 14.0, 17.0),
        a_span(backward, 17.0, 20.0),
    ]

    found = [
        (phase.part.label, phase.start_seconds, phase.end_seconds, phase.count)
        for phase in phases(spans)
    ]

    assert found == [
        ("Forward", 0.0, 2.0, 2),
        ("Forward and backward in turn", 4.0, 7.0, 2),
        ("Forward and backward in turn", 11.0, 14.0, 2),
        ("Backward", 14.0, 20.0, 2),
    ]


def test_a_rank_of_one_part_alone_is_one_phase() -> None:
    spans = [a_span(ActionKind.FORWARD, float(start), start + 1.0) for start in range(3)]
    assert [(phase.part.name, phase.count) for phase in phases(spans)] == [("forward", 3)]


def test_a_long_pipeline_is_drawn_in_phases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its 32 actions, which are drawn one by one otherwise, those in turn are one bar."""
    monkeypatch.setattr(timeline, "_DRAWN_LIMIT", 10)
    view = timeline_view(a_pipeline())
    assert view is not None
    assert view.in_phases
    drawn = [trace for trace in view.figure["data"] if trace["name"] != "Bubble"]
    assert sum(len(trace["x"]) for trace in drawn) < 32
    assert {part.label for part in view.parts} >= {"Forward", "Forward and backward in turn"}


def test_bubbles_and_actions_fill_every_stage_to_the_end() -> None:
    view = timeline_view(a_pipeline())
    assert view is not None
    ends = {
        row: sum(
            width
            for trace in view.figure["data"]
            for width, at in zip(trace["x"], trace["y"], strict=True)
            if at == row
        )
        for row in ("Stage 0", "Stage 1")
    }
    assert ends["Stage 0"] == pytest.approx(ends["Stage 1"], rel=1e-6)


def test_the_chrome_trace_has_an_event_for_each_action_and_names_its_stages() -> None:
    trace = chrome_trace(a_pipeline())
    events = trace["traceEvents"]
    assert [event["args"]["name"] for event in events if event["ph"] == "M"][1:] == [
        "stage 0",
        "stage 1",
    ]
    assert sum(event["cat"] == "action" for event in events if event["ph"] == "X") == 32
    first = next(event for event in events if event["ph"] == "X" and event["tid"] == 0)
    assert (first["name"], first["ts"]) == ("Forward", 0.0)


def test_the_page_states_the_simulated_step_and_how_long_stages_wait() -> None:
    plan = a_pipeline()
    assert plan.prediction.simulated is not None
    text = page("plan.html", view=plan_view(plan), **UNLABELLED).body.decode()
    assert "Timeline of the pipeline" in text
    assert f"{plan.prediction.simulated.bubble_ratio:.1%}" in text


@pytest.mark.parametrize(
    "plan",
    [
        a_plan(),
        a_pipeline(pipeline_parallel_degree=1, data_parallel_shard_degree=4),
        a_pipeline().model_copy(update={"planner_version": "0.0.9"}),
    ],
    ids=["not simulated", "no pipeline", "another version"],
)
def test_there_is_none_where_nothing_can_be_drawn(plan: Plan) -> None:
    assert timeline_view(plan) is None
    assert "Timeline" not in page("plan.html", view=plan_view(plan), **UNLABELLED).body.decode()
