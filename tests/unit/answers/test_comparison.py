"""Comparison: only what differs, beside the first plan."""

import pytest

from planner.answers.comparison import Comparison, Difference, blocks_per_stage, compare, every_fact
from planner.errors import InputError
from planner.schema.plan import Interval, ResolvedJob
from planner.schema.strategy import LayerGroup, Offload, Stage, Strategy
from planner.units import GIB
from tests.builders import a_cluster, a_job, a_plan, a_prediction, a_stage_prediction, a_strategy


def rows(comparison: Comparison) -> dict[str, Difference]:
    """Return the differences by name."""
    return {row.name: row for row in comparison.differences}


def test_equal_plans_have_no_differences():
    assert compare([a_plan(), a_plan(id="other")]).differences == ()


def test_differing_degree_is_listed_without_a_delta():
    other = a_plan(strategy=a_strategy(tensor_parallel_degree=4))
    row = rows(compare([a_plan(), other]))["strategy.tensor_parallel_degree"]
    assert (row.values, row.delta_ratios) == ((2, 4), (None, None))


def test_delta_is_relative_to_the_first_plan():
    faster = a_prediction(step_seconds=Interval(p10=0.9, p50=0.8, p90=1.2))
    slower = a_prediction(step_seconds=Interval(p10=0.9, p50=1.5, p90=1.2))
    plans = [a_plan(), a_plan(prediction=faster), a_plan(prediction=slower)]
    row = rows(compare(plans))["prediction.step_seconds.p50"]
    assert row.values == (1.0, 0.8, 1.5)
    assert row.delta_ratios == pytest.approx((0.0, -0.2, 0.5))


def test_facts_that_are_equal_are_counted_and_left_out():
    same = compare([a_plan(), a_plan()])
    changed = compare([a_plan(), a_plan(strategy=a_strategy(tensor_parallel_degree=4))])
    assert changed.equal_fact_count == same.equal_fact_count - 1


def test_noise_of_the_last_digit_is_no_difference():
    nearly = a_prediction(model_flop_utilization=0.41 * (1 + 1e-15))
    assert "prediction.model_flop_utilization" not in rows(
        compare([a_plan(), a_plan(prediction=nearly)])
    )


def test_stage_that_one_plan_lacks_has_no_value_and_no_delta():
    single = a_prediction(stages=(a_stage_prediction(0),))
    row = rows(compare([a_plan(), a_plan(prediction=single)]))[
        "prediction.stages.1.peak_memory_bytes"
    ]
    assert (row.values, row.delta_ratios) == ((10.0 * GIB, None), (0.0, None))


def test_delta_to_nothing_is_not_invented():
    base = a_prediction().breakdown_seconds
    one = a_prediction(breakdown_seconds=base.model_copy(update={"offload_exposed": 0.1}))
    row = rows(compare([a_plan(), a_plan(prediction=one)]))[
        "prediction.breakdown_seconds.offload_exposed"
    ]
    assert row.delta_ratios == (None, None)


def test_missing_cost_is_compared_as_missing():
    free = a_prediction(cost_per_million_tokens=None)
    row = rows(compare([a_plan(), a_plan(prediction=free)]))["prediction.cost_per_million_tokens"]
    assert (row.values, row.delta_ratios) == ((2.5, None), (0.0, None))


@pytest.mark.parametrize(
    ("change", "flag"),
    [
        ({"model": a_plan().model.model_copy(update={"digest": "x"})}, "models_differ"),
        ({"cluster": a_plan().cluster.model_copy(update={"digest": "x"})}, "clusters_differ"),
        ({"job": a_plan().job.model_copy(update={"digest": "x"})}, "jobs_differ"),
    ],
)
def test_different_questions_are_flagged(change, flag):
    comparison = compare([a_plan(), a_plan(**change)])
    flags = ("models_differ", "clusters_differ", "jobs_differ")
    assert {name for name in flags if getattr(comparison, name)} == {flag}


def test_what_was_asked_differently_is_a_fact_of_its_own():
    job = a_job(precision="fp32")
    asked = ResolvedJob(given={}, resolved=job, digest=job.digest())
    row = rows(compare([a_plan(), a_plan(job=asked)]))["job.precision"]
    assert (row.section, row.label, row.values) == ("job", "precision", ("bf16", "fp32"))
    assert row.delta_ratios == (None, None)


def test_a_fact_of_jobs_is_not_counted_where_they_ask_alike():
    names = {fact.name for fact in every_fact([a_plan(), a_plan()])}
    assert not any(name.startswith("job.") for name in names)


@pytest.mark.parametrize("count", [0, 1, 17])
def test_number_of_plans_must_fit_side_by_side(count):
    with pytest.raises(InputError, match="2 to 16 plans"):
        compare([a_plan()] * count)


def test_mixed_layer_groups_are_summed_up_by_blocks():
    groups = (
        LayerGroup(first_block=0, block_count=3, zero_stage=1),
        LayerGroup(first_block=3, block_count=1, zero_stage=3, offload=(Offload.OPTIMIZER,)),
    )
    mixed = Strategy(
        tensor_parallel_degree=2,
        data_parallel_shard_degree=2,
        stages=(Stage(stage=0, layers=groups),),
    ).resolved(block_count=4, global_batch_size=16)
    found = rows(compare([a_plan(), a_plan(strategy=mixed)]))
    assert found["strategy.zero_stage"].values == ("1", "1 (3 blocks), 3 (1 block)")
    assert found["strategy.offload"].values == ("none", "none (3 blocks), optimizer (1 block)")


@pytest.mark.parametrize(
    ("counts", "text"),
    [((2, 2), "2"), ((3, 1), "3 + 1"), ((1, 2, 2, 2, 1), "1 + 3 x 2 + 1"), ((4,), "4")],
)
def test_blocks_of_the_stages_are_spelled_out_where_uneven(counts, text):
    firsts = [sum(counts[:index]) for index in range(len(counts))]
    stages = tuple(
        Stage(stage=index, layers=(LayerGroup(first_block=first, block_count=count),))
        for index, (first, count) in enumerate(zip(firsts, counts, strict=True))
    )
    strategy = Strategy(pipeline_parallel_degree=len(counts), stages=stages)
    assert blocks_per_stage(strategy) == text


def test_columns_say_what_they_are_about():
    plan = a_plan(id="plan-b", cluster=a_plan().cluster, job=a_plan().job)
    heading = compare([a_plan(), plan]).plans[1]
    assert (heading.id, heading.model, heading.device_count) == ("plan-b", "tiny", 8)
    assert heading.cluster == a_cluster().name
    assert heading.global_batch_size == a_job().global_batch_size


def test_comparison_is_a_document():
    comparison = compare([a_plan(), a_plan(strategy=a_strategy(tensor_parallel_degree=4))])
    assert Comparison.model_validate_json(comparison.to_json()) == comparison
