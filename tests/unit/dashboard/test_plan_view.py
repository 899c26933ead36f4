"""The page of a plan: its numbers, arranged."""

import pytest

from api.dashboard.plan_view import plan_view, stage_layers
from api.dashboard.rendering import page
from api.dashboard.why_view import why_view
from planner.schema.plan import Interval, MemoryBreakdown
from planner.schema.strategy import EdgeChoice, LayerGroup, Offload, Stage
from planner.units import GIB
from tests.builders import a_certificate, a_plan, a_prediction, a_stage_prediction, a_strategy
from tests.unit.dashboard.unlabelled import UNLABELLED


def headlines(plan):
    """Return the headline numbers by label."""
    return {item.label: (item.value, item.note) for item in plan_view(plan).headlines}


def test_headlines_have_units_and_proportions():
    assert headlines(a_plan()) == {
        "Step time": ("1 s", "900 ms to 1.2 s (p10 to p90)"),
        "Throughput per device": ("256 tokens/s", "2.05 k tokens/s on 8 devices"),
        "Model FLOP utilization": ("41.0%", "of the devices' peak"),
        "Peak memory": ("10 GiB", "of 76 GiB usable, 99% chance to fit"),
        "Cost": ("$2.50", "per million tokens"),
    }


def test_without_prices_no_cost_is_shown():
    plan = a_plan(prediction=a_prediction(cost_per_million_tokens=None))
    assert "Cost" not in headlines(plan)


def test_peak_memory_is_the_fullest_stages():
    fullest = a_stage_prediction(1, peak_memory_bytes=40.0 * GIB, capacity_bytes=50.0 * GIB)
    plan = a_plan(prediction=a_prediction(stages=(a_stage_prediction(0), fullest)))
    value, note = headlines(plan)["Peak memory"]
    assert value == "40 GiB"
    assert note.startswith("of 50 GiB")


def test_layers_run_from_the_embedding_to_the_head():
    first, last = stage_layers(a_strategy())
    assert [row.layers for row in first.rows] == ["Embedding", "Blocks 0 to 1"]
    assert [row.layers for row in last.rows] == ["Blocks 2 to 3", "LM head"]


def test_layer_group_says_how_it_is_kept():
    group = LayerGroup(
        first_block=0,
        block_count=1,
        zero_stage=3,
        activation_checkpointing="full",
        offload=(Offload.OPTIMIZER, Offload.ACTIVATIONS),
    )
    rest = LayerGroup(first_block=1, block_count=3)
    strategy = a_strategy(
        pipeline_parallel_degree=1, zero_stage=None, stages=(Stage(stage=0, layers=(group, rest)),)
    )
    row = stage_layers(strategy)[0].rows[1]
    assert row.layers == "Block 0"
    assert (row.zero_stage, row.activation_checkpointing) == (3, "full")
    assert row.offload == "optimizer, activations"


def test_edges_have_choices_of_their_own():
    strategy = a_strategy(embedding=EdgeChoice(zero_stage=2, offload=(Offload.PARAMETERS,)))
    row = stage_layers(strategy)[0].rows[0]
    assert (row.layers, row.zero_stage, row.offload) == ("Embedding", 2, "parameters")


def test_degrees_of_a_flat_strategy_name_no_schedule():
    flat = dict(plan_view(a_plan(strategy=a_strategy(pipeline_parallel_degree=1))).degrees)
    assert flat["Pipeline parallel"] == "1 stage"
    assert "Pipeline schedule" not in flat


def test_degrees_say_what_a_pipeline_does():
    degrees = dict(plan_view(a_plan()).degrees)
    assert degrees["Pipeline parallel"] == "2 stages"
    assert degrees["Pipeline schedule"] == "1f1b"
    assert degrees["Data parallel, sharded"] == "2 ranks"
    assert degrees["Micro-batches per step"] == "8"


def test_shares_of_the_step_sum_to_one():
    rows = plan_view(a_plan()).step_rows
    assert sum(row.ratio for row in rows) == pytest.approx(1.0)
    assert rows[0].part.label == "Compute"
    assert rows[0].ratio == pytest.approx(0.6)


def test_the_page_says_how_far_off_a_step_may_be_and_why():
    told = a_prediction(
        step_seconds={"p10": 0.8, "p50": 1.0, "p90": 1.25},
        interval_causes=[
            {"cause": "runs of one stack differ", "ratio": 0.09},
            {"cause": "no run on <this> device was seen", "ratio": 0.23},
        ],
    )
    plan = a_plan(prediction=told)
    said = plan_view(plan).interval
    assert said == (
        "Four runs in five are expected within 25.0% of this: "
        "no run on <this> device was seen (23.0%); runs of one stack differ (9.0%)."
    )
    assert plan_view(a_plan(prediction=a_prediction(interval_causes=[]))).interval == ""


def test_memory_table_leaves_out_what_no_stage_uses():
    nothing = dict.fromkeys(MemoryBreakdown.model_fields, 0.0)
    memory = MemoryBreakdown(**{**nothing, "parameters": 3 * GIB, "runtime": 1 * GIB})
    stage = a_stage_prediction(memory_bytes=memory, peak_memory_bytes=4.0 * GIB)
    view = plan_view(a_plan(prediction=a_prediction(stages=(stage,))))
    assert [part.name for part in view.memory_parts] == ["parameters", "runtime"]
    assert view.memory_rows[0].amounts == (3 * GIB, 1 * GIB)
    assert view.memory_rows[0].used_ratio == pytest.approx(4 / 76)


def test_virtual_stages_say_their_rank_and_memory_is_counted_by_rank():
    """ZB-V goes there and back: the first rank holds the first virtual stage and the last."""
    groups = [LayerGroup(first_block=block, block_count=1) for block in range(4)]
    strategy = a_strategy(
        zero_stage=None,
        pipeline_parallel_degree=2,
        pipeline_schedule="zb_v",
        virtual_pipeline_degree=2,
        stages=tuple(Stage(stage=index, layers=(group,)) for index, group in enumerate(groups)),
    )
    stages = stage_layers(strategy)
    assert [stage.label for stage in stages] == [
        "0 (on rank 0)",
        "1 (on rank 1)",
        "2 (on rank 1)",
        "3 (on rank 0)",
    ]
    view = plan_view(a_plan(strategy=strategy))
    assert view.memory_place == "rank"
    assert dict(view.degrees)["Pipeline parallel"] == "2 ranks"
    assert dict(view.degrees)["Virtual stages per rank"] == "2"


def test_the_certificate_of_a_lean_plan_speaks_of_memory():
    certificate = a_certificate(
        objective="memory", objective_value=3.0 * GIB, objective_lower_bound=3.0 * GIB
    )
    text = page(
        "plan.html", view=plan_view(a_plan(certificate=certificate)), **UNLABELLED
    ).body.decode()
    assert "no plan has less than 3 GiB on the fullest device" in text
    assert "No strategy of the searched space takes less than" not in text


@pytest.mark.parametrize("name", ["plan.html", "why.html"])
def test_what_is_proven_stands_beside_how_far_predictions_may_be_off(name):
    step = Interval(p10=0.75, p50=1.0, p90=1.5)
    plan = a_plan(prediction=a_prediction(step_seconds=step))
    view = plan_view(plan) if name == "plan.html" else why_view(plan, [])
    text = page(name, view=view, **UNLABELLED).body.decode()
    assert "expected between 750 ms and 1.5 s in four of five runs" in text


@pytest.mark.parametrize(
    ("status", "gap_ratio", "expected"),
    [
        ("optimal", 0.0, "Proven optimal"),
        ("feasible", 0.02, "Gap 2%"),
        ("feasible", 1.0, "Nothing proven"),
    ],
)
def test_the_badge_of_a_certificate_says_what_was_proven(status, gap_ratio, expected):
    certificate = a_certificate(status=status, gap_ratio=gap_ratio)
    text = page(
        "plan.html", view=plan_view(a_plan(certificate=certificate)), **UNLABELLED
    ).body.decode()
    heading = text[text.index('<h2 id="certificate">') :].split("</h2>")[0]
    assert expected in heading
