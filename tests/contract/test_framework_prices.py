"""The price of a framework is the step of the fastest plan for it, beside the plan's own."""

from __future__ import annotations

from functools import cache

import pytest

from planner import planning
from planner.answers.framework_prices import framework_prices
from planner.cli.views.framework_prices import framework_prices_view
from planner.importers.clusters import read_cluster
from planner.importers.models import read_model
from planner.requests.inquiry import Inquiry
from planner.requests.resolution import cluster_document, model_document
from planner.schema.framework_prices import FrameworkPrice, FrameworkPrices
from planner.schema.job import Framework, Job
from planner.schema.plan import Plan


def planned(**fields: object) -> Plan:
    """The fastest plan of GPT-2 on two T4."""
    job = Job.model_validate(
        {
            "global_batch_size": 32,
            "sequence_length": 1024,
            "precision": "fp16",
            "limits": {"solver_seconds": 300, "simplicity_ratio": 0},
            **fields,
        }
    )
    cluster = cluster_document(*read_cluster("2xt4-16gb")[:2])
    answer = planning.plan(model_document(*read_model("gpt2")), cluster, job)
    assert isinstance(answer, Plan)
    return answer


@cache
def prices() -> dict[Framework, FrameworkPrice]:
    """The prices of all frameworks beside the plan without one."""
    found = framework_prices(planned(), inquiry=Inquiry.within(1200))
    return {price.framework: price for price in found.prices}


def test_every_framework_stands_there() -> None:
    assert tuple(prices()) == tuple(Framework)


@pytest.mark.parametrize("framework", [Framework.DEEPSPEED, Framework.ACCELERATE])
def test_a_price_is_the_step_of_the_plan_for_the_framework(framework: Framework) -> None:
    price = prices()[framework]
    own = planned(framework=framework).prediction.step_seconds.p50
    assert price.step_seconds == pytest.approx(own, rel=1e-9)
    base = planned().prediction.step_seconds.p50
    assert price.slower_ratio == pytest.approx(own / base - 1.0, rel=1e-9)


@pytest.mark.parametrize("framework", [Framework.DEEPSPEED, Framework.ACCELERATE])
def test_what_it_cannot_say_is_its_plan_under_the_other_stack(framework: Framework) -> None:
    price = prices()[framework]
    assert price.strategy is not None
    assert price.step_seconds is not None
    plan = planned()
    free = plan.job.resolved.model_copy(update={"framework": None})
    under = planning.estimate(plan.model, plan.cluster, free, price.strategy)
    step, base = under.prediction.step_seconds.p50, plan.prediction.step_seconds.p50
    assert price.restriction_ratio == pytest.approx(step / base - 1.0, rel=1e-9)
    assert price.stack_ratio == pytest.approx(price.step_seconds / step - 1.0, rel=1e-9)


def test_a_program_of_the_plans_own_stack_differs_by_what_it_cannot_say_alone() -> None:
    price = prices()[Framework.ACCELERATE]
    assert price.stack_ratio == pytest.approx(0.0, abs=1e-12)
    assert price.slower_ratio == price.restriction_ratio


def test_accelerate_prices_a_restriction_of_the_same_stack() -> None:
    ratio = prices()[Framework.ACCELERATE].slower_ratio
    assert ratio is not None
    assert ratio >= -1e-9


def test_a_framework_without_the_jobs_format_is_refused_in_words() -> None:
    price = prices()[Framework.TORCHTITAN]
    assert price.status == "refused"
    assert "float16" in str(price.reason)


def test_what_was_not_searched_in_time_says_so() -> None:
    found = framework_prices(planned(), inquiry=Inquiry.within(0.0))
    assert {price.status for price in found.prices} == {"out_of_time"}


def test_a_row_says_how_much_slower_and_why_there_is_none() -> None:
    from rich.console import Console  # noqa: PLC0415 - the view's own

    console = Console(width=160)
    document = framework_prices(planned(), inquiry=Inquiry.within(0.0))
    slower = FrameworkPrice(
        framework=Framework.ACCELERATE,
        stack="torch",
        status="found",
        description="DP 2",
        step_seconds=2.0,
        slower_ratio=0.25,
        restriction_ratio=0.0,
        stack_ratio=0.25,
        certificate=planned().certificate,
    )
    whole: FrameworkPrices = document.model_copy(update={"prices": (slower, *document.prices[2:3])})
    with console.capture() as captured:
        console.print(framework_prices_view(whole))
    lines = [" ".join(line.split()) for line in captured.get().splitlines()]
    assert lines[0] == "framework stack step beside the plan cannot say its program proof strategy"
    assert lines[2] == "accelerate torch 2 s +25.0% +0.0% +25.0% optimal DP 2"
    assert lines[3].endswith("nothing found in time")
