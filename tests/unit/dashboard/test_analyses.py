"""Questions about a plan: what the pool works out, and how pages show it."""

import re

import pytest

from api.dashboard.rendering import page
from api.dashboard.tradeoff_view import tradeoff_view
from api.dashboard.why_view import why_view
from api.services.analyses import Analysis
from api.services.analysis_work import analyse
from planner.errors import InputError
from planner.planning import plan
from planner.requests.resolution import resolved_cluster, resolved_model
from planner.schema.framework_prices import FrameworkPrice, FrameworkPrices
from planner.schema.frontier import AlternativePlan, Frontier
from planner.schema.job import Framework, Job, Stack
from planner.schema.reasons import Heatmap, HeatmapCell, Objection, Reasons, Rival, Safety
from planner.schema.service import PlanLabels
from planner.units import GIB
from tests.builders import a_cluster, a_model, a_plan

ASKED = "tensor_parallel_degree=3"


@pytest.fixture(scope="module")
def planned():
    """A plan of the real planner for the tiny model."""
    model = resolved_model(a_model().model_dump(mode="json"))
    cluster = resolved_cluster(a_cluster().model_dump(mode="json"))
    return plan(model, cluster, Job(global_batch_size=16, sequence_length=128))


def an_analysis(kind="why-not", asked=ASKED, **changes):
    fields = {
        "kind": kind,
        "asked": asked,
        "state": "succeeded",
        "phase": "",
        "done": 0,
        "total": 1,
        "document_json": None,
        "problem": None,
    }
    return Analysis(**{**fields, **changes})


def test_degrees_that_cannot_be_are_answered_with_the_rules_they_break(planned):
    text = analyse("why-not", planned.model_dump_json(), ASKED, seconds=20.0)
    answer = Objection.model_validate_json(text)
    assert answer.verdict == "illegal"
    assert any("heads" in rule for rule in answer.rules)


def test_progress_is_told_while_pairs_are_solved(planned):
    told = []
    analyse("heatmap", planned.model_dump_json(), "", seconds=20.0, on_progress=told.append)
    assert told[0][:2] == ("heatmap", 0)


def test_a_plan_of_another_cost_model_is_refused_with_what_to_do():
    with pytest.raises(InputError, match="plan again"):
        analyse("reasons", a_plan().model_dump_json(), "", seconds=1.0)


def test_an_objection_reads_as_words_and_shows_its_answer():
    answer = Objection(asked=ASKED, verdict="illegal", answer="no", rules=("a", "b"))
    view = why_view(a_plan(), [an_analysis(document_json=answer.model_dump_json())])
    (shown,) = view.objections
    assert (shown.asked, shown.answer, view.is_running) == ("tensor parallel 3", answer, False)


def test_a_question_at_work_makes_the_page_watch():
    assert why_view(a_plan(), [an_analysis("reasons", "", state="running")]).is_running
    assert tradeoff_view(a_plan(), [an_analysis("heatmap", "", state="running")]).is_running


def test_a_framework_has_a_step_with_its_causes_or_why_it_has_no_plan():
    plan = a_plan()
    prices = (
        FrameworkPrice(
            framework=Framework.DEEPSPEED,
            stack=Stack.DEEPSPEED,
            status="found",
            strategy=plan.strategy,
            description="DP 2",
            step_seconds=2.2,
            slower_ratio=0.1,
            restriction_ratio=0.0,
            stack_ratio=0.1,
            certificate=plan.certificate,
        ),
        FrameworkPrice(
            framework=Framework.TORCHTITAN,
            stack=Stack.TORCH,
            status="refused",
            reason="precision: float16",
        ),
    )
    found = FrameworkPrices(
        plan=plan.id,
        description="DP 2",
        stack=Stack.TORCH,
        step_seconds=2.0,
        prices=prices,
        planner_version="0",
    )
    analysis = an_analysis("frameworks", "", document_json=found.model_dump_json())
    view = tradeoff_view(plan, [analysis])
    text = page("tradeoffs.html", view=view, labels=PlanLabels()).body.decode()
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in text.split("<tr ")[-2:]]
    assert cells[0][:6] == ["deepspeed", "2.2 s", "+10.0%", "±0%", "+10.0%", "DP 2"]
    assert "cannot run the job" in cells[1][1]
    assert "precision: float16" in cells[1][1]


def test_other_plans_are_summed_up_and_unfold():
    plan = a_plan()
    others = tuple(
        AlternativePlan(
            rank=rank,
            description=f"DP {rank}",
            step_seconds=1.0 + ratio,
            slower_ratio=ratio,
            peak_memory_bytes=GIB,
            cost_per_million_tokens=None,
            strategy=plan.strategy,
            proven=True,
        )
        for rank, ratio in enumerate((0.0, 0.05, 0.1), start=1)
    )
    front = Frontier(
        status="complete",
        model=plan.model,
        cluster=plan.cluster,
        job=plan.job,
        points=(),
        alternatives=others,
        other_choices=others[1:2],
        skipped=(),
        search_count=1,
        dominated_count=0,
        planner_version="0",
    )
    analysis = an_analysis("frontier", "", document_json=front.model_dump_json())
    view = tradeoff_view(plan, [analysis])
    text = page("tradeoffs.html", view=view, labels=PlanLabels()).body.decode()
    assert re.findall(r"<details><summary>(.*?)</summary>", text) == [
        "1 plan, +5.0% against the best",
        "3 plans, ±0% to +10.0% against the best",
    ]


def test_every_cell_of_the_heatmap_has_a_step_or_a_reason():
    cells = (
        HeatmapCell(row=1, column=1, status="illegal", reason="too few heads"),
        HeatmapCell(row=1, column=2, status="does_not_fit", missing_bytes=2.0 * GIB, reason="x"),
        HeatmapCell(row=2, column=1, status="solved", step_seconds=1.2, slower_ratio=0.2),
        HeatmapCell(
            row=2, column=2, status="solved", step_seconds=1.0, slower_ratio=0.0, proven=True
        ),
    )
    heatmap = Heatmap(row_field="tp", column_field="pp", rows=(1, 2), columns=(1, 2), cells=cells)
    analysis = an_analysis("heatmap", "", document_json=heatmap.model_dump_json())
    view = tradeoff_view(a_plan(), [analysis])
    first, second = view.rows
    assert [(cell.text, cell.note) for cell in first.cells] == [
        ("not legal", ""),
        ("too little memory", "at least 2 GiB short"),
    ]
    assert [cell.reason_number for cell in first.cells] == [1, 2]
    assert view.reasons == ("too few heads", "x")
    assert [(cell.note, cell.colour_class) for cell in second.cells] == [
        ("+20.0%, not proven", "heat-3"),
        ("±0%", "heat-0"),
    ]
    assert [cell.is_the_plan for cell in second.cells] == [False, True]


def test_a_reason_of_many_pairs_is_told_once():
    """Three pairs for two reasons; what is solved has none."""
    reasons = ("too few heads", "too few blocks", "too few heads")
    cells = [HeatmapCell(row=1, column=2**i, status="illegal", reason=reasons[i]) for i in range(3)]
    cells.append(HeatmapCell(row=1, column=8, status="solved", step_seconds=1.0, slower_ratio=0.0))
    heatmap = Heatmap(
        row_field="tp", column_field="pp", rows=(1,), columns=(1, 2, 4, 8), cells=tuple(cells)
    )
    analysis = an_analysis("heatmap", "", document_json=heatmap.model_dump_json())

    view = tradeoff_view(a_plan(), [analysis])
    text = page("tradeoffs.html", view=view, labels=PlanLabels()).body.decode()

    assert [cell.reason_number for cell in view.rows[0].cells] == [1, 2, 1, None]
    assert (text.count("Too few heads"), text.count("Too few blocks")) == (1, 1)
    assert text.count('href="#reason-1"') == 2


def test_the_heatmap_shows_what_the_plan_is_best_at():
    cell = HeatmapCell(
        row=1,
        column=1,
        status="solved",
        step_seconds=3.0,
        slower_ratio=2.0,
        objective_value=0.25,
        more_ratio=0.1,
        proven=True,
    )
    heatmap = Heatmap(
        row_field="tp",
        column_field="pp",
        rows=(1,),
        columns=(1,),
        cells=(cell,),
        objective="cost",
    )
    analysis = an_analysis("heatmap", "", document_json=heatmap.model_dump_json())
    [row] = tradeoff_view(a_plan(), [analysis]).rows
    assert [(c.text, c.note, c.colour_class) for c in row.cells] == [("$0.25", "+10.0%", "heat-2")]


def test_the_page_of_reasons_speaks_of_what_the_plan_is_best_at():
    price = {
        "resource": "device_memory",
        "device": "h100-sxm5-80gb",
        "added_bytes": float(GIB),
        "step_seconds": 1.0,
        "step_seconds_with_more": 2.0,
        "saved_seconds": -1.0,
        "proven": True,
        "objective_value_with_more": 3.0 * GIB,
        "saved_value": 1.0 * GIB,
    }
    answer = Reasons(
        plan_id="plan-1",
        summary="lean",
        step_seconds=1.0,
        binding_constraints=(),
        shadow_prices=(price,),
        runner_up=None,
        objections=(),
        heatmap=None,
        search_count=1,
        planner_version="0.1.0",
        objective="memory",
        objective_value=4.0 * GIB,
    )
    asked = an_analysis("reasons", "", document_json=answer.model_dump_json())
    text = page("why.html", view=why_view(a_plan(), [asked]), labels=PlanLabels()).body.decode()
    assert "What one more GiB saves of 4 GiB on the fullest device" in text
    assert ">1 GiB on the fullest device<" in text


def test_the_page_of_reasons_says_what_safety_costs_and_compares_the_most_likely_plan():
    chosen = a_plan()
    found = Safety(
        asked_probability=0.95,
        proven=True,
        strategy=chosen.strategy,
        description="PP 2",
        fits_probability=0.8,
        step_seconds=2.0,
        asked_description="DP 4",
        asked_step_seconds=2.05,
        cost_seconds=0.05,
        cost_value=0.05,
        cost_ratio=0.025,
    )
    reasons = Reasons(
        plan_id=chosen.id,
        summary="a plan",
        step_seconds=2.05,
        binding_constraints=(),
        shadow_prices=(),
        runner_up=None,
        objections=(),
        heatmap=None,
        search_count=1,
        planner_version="test",
        safety=found,
    )
    view = why_view(chosen, [an_analysis("reasons", "", document_json=reasons.model_dump_json())])
    assert view.safety.startswith("A chance of fitting of 95% costs 50 ms a step (2.50%): ")
    assert (
        "PP 2, takes 2 s with a chance of 80.0%, the fastest with the chance asked" in view.safety
    )
    assert view.safety_url.startswith("/compare?")
    free = found.model_copy(update={"cost_value": 0.0})
    document = reasons.model_copy(update={"safety": free}).model_dump_json()
    assert why_view(chosen, [an_analysis("reasons", "", document_json=document)]).safety_url is None


def test_a_runner_up_that_is_faster_than_a_simpler_plan_is_not_called_longer():
    chosen = a_plan()
    rival = Rival(
        description="TP 4",
        step_seconds=0.9,
        slower_seconds=-0.1,
        slower_ratio=-0.1,
        proven=True,
        strategy=chosen.strategy,
    )
    reasons = Reasons(
        plan_id=chosen.id,
        summary="a plan",
        step_seconds=1.0,
        binding_constraints=(),
        shadow_prices=(),
        runner_up=rival,
        objections=(),
        heatmap=None,
        search_count=1,
        planner_version="test",
    )
    view = why_view(chosen, [an_analysis("reasons", "", document_json=reasons.model_dump_json())])
    text = page("why.html", view=view, labels=PlanLabels()).body.decode()
    said = "takes 900 ms a step: 100 ms shorter (\u221210.0%), proven; this plan is simpler."
    assert said in text
