"""What a comparison comes to, and what it is put down to."""

import pytest

from api.dashboard.comparison_cards import metrics
from api.dashboard.comparison_view import comparison_view
from planner.schema.plan import Interval, ResolvedJob, ResolvedModel, StepBreakdown
from tests.browser.seeds import a_proven_plan, a_wide_plan
from tests.builders import a_job, a_model, a_plan, a_prediction, a_strategy


def the_finding(*plans):
    """Return what the second plan comes to against the first."""
    return comparison_view(plans, shown="differences").findings[0]


def test_a_faster_plan_is_said_to_be_faster_and_by_how_much():
    found = the_finding(a_proven_plan(), a_wide_plan())
    assert (found.letter, found.verdict) == ("B", "better")
    assert found.headline == "200 ms a step faster than A (\N{MINUS SIGN}20.0%)"


def test_the_largest_change_comes_first_with_the_settings_behind_it():
    first = the_finding(a_proven_plan(), a_wide_plan()).causes[0]
    assert (first.part.label, first.text) == ("Bubble", "\N{MINUS SIGN}120 ms")
    assert "pipeline parallel 2 → 1" in first.settings


def test_changes_of_the_causes_sum_to_the_change_of_the_step():
    figure = the_finding(a_proven_plan(), a_wide_plan()).figure
    *causes, step = figure["data"][0]["x"]
    assert sum(causes) == pytest.approx(step)


def test_more_memory_is_a_cost_and_says_on_what():
    (memory, *_) = the_finding(a_proven_plan(), a_wide_plan()).costs
    assert memory.startswith("65 GiB more on the fullest device")


def test_money_is_told_for_a_trillion_tokens():
    dearer = a_plan(id="plan-dear", prediction=a_prediction(cost_per_million_tokens=3.0))
    assert the_finding(a_plan(), dearer).costs == (
        "$3.00 instead of $2.50 per million tokens: $500,000 more for a trillion",
    )


def test_equal_plans_are_as_fast_and_have_no_causes():
    found = the_finding(a_plan(), a_plan(id="plan-twin"))
    assert (found.verdict, found.causes, found.costs) == ("same", (), ())


def test_a_change_that_nobody_sees_is_no_cause():
    parts = a_prediction().breakdown_seconds.model_dump()
    slower = StepBreakdown(**{**parts, "host": parts["host"] + 1e-5})
    other = a_plan(id="plan-other", prediction=a_prediction(breakdown_seconds=slower))
    assert the_finding(a_plan(), other).causes == ()


def test_what_was_asked_differently_is_a_reason_before_any_setting():
    job = a_job(precision="fp32")
    parts = a_prediction().breakdown_seconds.model_dump()
    slower = StepBreakdown(**{**parts, "compute": 2 * parts["compute"]})
    other = a_plan(
        id="plan-other",
        job=ResolvedJob(given={}, resolved=job, digest=job.digest()),
        prediction=a_prediction(breakdown_seconds=slower),
        strategy=a_strategy(tensor_parallel_degree=4),
    )
    (compute,) = the_finding(a_plan(), other).causes
    assert compute.settings == ("precision bf16 → fp32", "tensor parallel 2 → 4")


def a_slower_plan(**changes):
    """2.5 s a step, in nine causes."""
    parts = dict.fromkeys(StepBreakdown.model_fields, 0.25)
    found = StepBreakdown(**{**parts, "recompute": 0.5, "bubble": 0.0, "offload_exposed": 0.0})
    step = Interval(p10=2.4, p50=2.5, p90=2.6)
    prediction = a_prediction(step_seconds=step, breakdown_seconds=found)
    return a_plan(**{"id": "plan-slower", "prediction": prediction, **changes})


def test_listed_causes_and_the_rest_sum_to_the_change_of_the_step():
    nothing = StepBreakdown(**dict.fromkeys(StepBreakdown.model_fields, 0.0))
    step = Interval(p10=0.1, p50=0.1, p90=0.1)
    base = a_plan(prediction=a_prediction(step_seconds=step, breakdown_seconds=nothing))
    found = the_finding(base, a_slower_plan())
    assert [cause.seconds for cause in found.causes] == [0.5, 0.25, 0.25, 0.25, 0.25]
    assert found.rest == "+900 ms"  # of 2.4 s


def test_plans_of_different_work_are_not_judged_and_no_setting_is_their_cause():
    job = a_job(global_batch_size=8)
    other = a_slower_plan(
        job=ResolvedJob(given={}, resolved=job, digest=job.digest()),
        strategy=a_strategy(tensor_parallel_degree=4),
    )
    found = the_finding(a_plan(), other)
    assert found.question == ("global batch size 16 → 8",)
    assert found.verdict == "same"
    assert found.headline == "1.5 s a step longer than A (+150.0%)"
    assert {cause.settings for cause in found.causes} == {()}
    cards = metrics(other, a_plan())
    assert {metric.cell.verdict for metric in cards} == {"same"}


def test_models_of_one_name_are_told_apart():
    model = a_model(vocabulary_size=512)
    other = a_plan(model=ResolvedModel(given={}, resolved=model, digest=model.digest()))
    assert the_finding(a_plan(), other).question == (
        f"model of the same name, {model.name}, with other fields",
    )


def test_long_names_are_told_apart_by_their_beginnings_and_ends():
    named = [a_model(name="m" * 150 + end) for end in ("a", "b")]
    one, other = (
        a_plan(model=ResolvedModel(given={}, resolved=model, digest=model.digest()))
        for model in named
    )
    short = "m" * 28 + "…" + "m" * 18
    assert the_finding(one, other).question == (f"model {short}a → {short}b",)


def checkpointed(mode, seconds):
    """A plan whose blocks keep what `mode` says, of so many seconds of recomputing."""
    parts = {**a_prediction().breakdown_seconds.model_dump(), "recompute": seconds}
    return a_plan(
        strategy=a_strategy(activation_checkpointing=mode),
        prediction=a_prediction(breakdown_seconds=StepBreakdown(**parts)),
    )


@pytest.mark.parametrize(
    ("seconds", "settings"),
    [(0.9, ("activation checkpointing none → full",)), (0.1, ())],
)
def test_a_setting_that_moves_a_cause_the_other_way_is_not_named(seconds, settings):
    before = checkpointed("none", 0.5)
    (recompute,) = the_finding(before, checkpointed("full", seconds)).causes
    assert recompute.part.name == "recompute"
    assert recompute.settings == settings


def test_cards_judge_each_number_in_its_own_direction():
    cards = metrics(a_wide_plan(), a_proven_plan())
    verdicts = {metric.label: metric.cell.verdict for metric in cards}
    assert verdicts == {
        "Step": "better",
        "Throughput per device": "same",
        "Peak memory": "worse",
        "Cost per million tokens": "same",
    }
