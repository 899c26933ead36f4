"""The compare page: columns, judged deltas, links that change what is compared."""

from api.dashboard.comparison_view import compare_url, comparison_view
from planner.schema.job import DegreeLimit, Limits
from planner.schema.plan import Interval, ResolvedJob, ResolvedModel
from planner.units import GIB
from tests.builders import (
    a_certificate,
    a_job,
    a_model,
    a_plan,
    a_prediction,
    a_simplicity,
    a_stage_prediction,
    a_strategy,
)


def a_faster_plan(**changes):
    """Four fifths of the time, twice the tensor parallelism, a fuller stage."""
    prediction = a_prediction(
        step_seconds=Interval(p10=0.7, p50=0.8, p90=1.0),
        tokens_per_second_per_device=320.0,
        stages=(a_stage_prediction(0), a_stage_prediction(1, peak_memory_bytes=20.0 * GIB)),
    )
    strategy = a_strategy(tensor_parallel_degree=4, data_parallel_shard_degree=1)
    return a_plan(**{"id": "faster", "prediction": prediction, "strategy": strategy, **changes})


def with_job(**changes):
    job = a_job(**changes)
    return ResolvedJob(given=job.model_dump(mode="json"), resolved=job, digest=job.digest())


def cells(view):
    """Return the cells of every row by label."""
    return {row.label: row.cells for section in view.sections for row in section.rows}


def test_shorter_step_is_better():
    base, other = cells(comparison_view([a_plan(), a_faster_plan()], shown="differences"))["Step"]
    assert (base.text, base.delta) == ("1 s", "")
    assert (other.text, other.delta) == ("800 ms", "\N{MINUS SIGN}20.0%")
    assert other.verdict == "better"


def test_lower_throughput_is_worse():
    view = comparison_view([a_faster_plan(), a_plan()], shown="differences")
    _, other = cells(view)["Tokens per second and device"]
    assert (other.delta, other.verdict) == ("\N{MINUS SIGN}20.0%", "worse")


def test_more_memory_of_a_stage_is_no_judgement():
    view = comparison_view([a_plan(), a_faster_plan()], shown="differences")
    _, other = cells(view)["Stage 1, peak"]
    assert (other.text, other.delta, other.verdict) == ("20 GiB", "+100.0%", "same")


def test_what_is_equal_is_shown_only_when_asked_for():
    plans = [a_plan(), a_faster_plan()]
    assert "Micro-batch size" not in cells(comparison_view(plans, shown="differences"))
    assert "Micro-batch size" in cells(comparison_view(plans, shown="all"))


def test_toggle_leads_to_the_other_view():
    plans = [a_plan(id="a"), a_faster_plan(id="b")]
    assert comparison_view(plans, shown="differences").toggle_url == (
        "/compare?plan=a&plan=b&show=all"
    )
    assert comparison_view(plans, shown="all").toggle_url == "/compare?plan=a&plan=b"


def test_any_plan_can_become_the_baseline():
    plans = [a_plan(id="a"), a_faster_plan(id="b"), a_plan(id="c")]
    first, _, third = comparison_view(plans, shown="differences").columns
    assert first.baseline_url is None
    assert third.baseline_url == "/compare?plan=c&plan=a&plan=b"


def test_a_plan_can_be_removed_as_long_as_two_remain():
    plans = [a_plan(id="a"), a_faster_plan(id="b"), a_plan(id="c")]
    three = comparison_view(plans, shown="all").columns
    assert three[1].without_url == "/compare?plan=a&plan=c&show=all"
    assert comparison_view(plans[:2], shown="all").columns[1].without_url is None


def test_a_simpler_plan_says_what_the_fastest_takes_and_links_to_both():
    said = a_certificate(simplicity=a_simplicity(a_faster_plan().strategy))
    simple = a_plan(certificate=said)
    one, other = comparison_view([simple, a_faster_plan()], shown="differences").columns
    assert one.fastest == "the fastest takes 990 ms (1.00% less)"
    assert one.fastest_url.startswith(f"/compare?plan={simple.id}&config=")
    assert (other.fastest, other.fastest_url) == (None, None)


def test_ids_are_quoted_in_links():
    assert compare_url(["a&b", "c"]) == "/compare?plan=a%26b&plan=c"


def test_memory_of_all_plans_has_one_scale():
    columns = comparison_view([a_plan(), a_faster_plan()], shown="differences").columns
    ranges = [column.memory_figure["layout"]["xaxis"]["range"] for column in columns]
    assert ranges[0] == ranges[1]


def test_each_capacity_is_drawn_and_says_whose_it_is():
    small = a_prediction(stages=(a_stage_prediction(0, capacity_bytes=36.0 * GIB),))
    plans = [a_plan(prediction=a_prediction(stages=(a_stage_prediction(0),))), a_plan()]
    plans.insert(1, a_plan(prediction=small))
    view = comparison_view(plans, shown="differences")
    assert view.capacities == "76 GiB (A, C), 36 GiB (B)"
    lines = [shape["y0"] for shape in view.scatter_figure["layout"]["shapes"]]
    assert sorted(lines) == [36.0, 76.0]
    assert comparison_view(plans[::2], shown="differences").capacities == "76 GiB"


def test_different_batches_are_pointed_out():
    other = a_faster_plan(job=with_job(global_batch_size=32))
    view = comparison_view([a_plan(), other], shown="differences")
    assert view.caveats == ("jobs",)
    assert view.asked_differently == ("global batch size 16 → 32",)
    assert view.limits == ()


def test_models_that_differ_are_named():
    model = a_model(name="other")
    other = a_plan(model=ResolvedModel(given="other", resolved=model, digest=model.digest()))
    view = comparison_view([a_plan(), other, a_plan()], shown="differences")
    assert view.caveats == ("models",)
    assert view.asked_differently == (f"model {a_model().name} → other",)


def test_different_limits_ask_the_same_question():
    limits = Limits(tensor_parallel_degree=DegreeLimit(min=4, max=4))
    view = comparison_view([a_plan(), a_faster_plan(job=with_job(limits=limits))], shown="all")
    assert view.caveats == ()
    assert view.asked_differently == ()
    assert view.limits == ("tensor parallel degree any → 4",)
    asked = {section.title: section.rows for section in view.sections}["What was asked"]
    assert [(row.label, [cell.text for cell in row.cells]) for row in asked] == [
        ("Limits: tensor parallel degree", ["any", "4"])
    ]


def test_equal_plans_have_no_sections():
    assert comparison_view([a_plan(), a_plan(id="twin")], shown="differences").sections == ()
