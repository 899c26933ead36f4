"""Plans that may be faster than the closed forms say are simulated before one is chosen."""

from __future__ import annotations

from functools import cache

import pytest

from planner.answers.capacity import size
from planner.answers.finalists import best_plan
from planner.answers.frontier import frontier
from planner.answers.objectives import enough_by_simulation
from planner.answers.reasons import planned_of
from planner.cost.step import predict_simulated
from planner.ilp.problem import Found, Group
from planner.planning import plan
from planner.requests.inquiry import Inquiry, Solution
from planner.requests.references import read_cluster, read_model
from planner.requests.resolution import Request, model_document, resolved_request
from planner.requests.variation import with_limits
from planner.schema.job import Job
from planner.schema.plan import ClosedForm, Plan, ResolvedModel
from planner.schema.sizing import SizingWish
from planner.schema.strategy import PipelineSchedule

LIMITS = {
    "zero_stages": [1],
    "activation_checkpointing": ["none"],
    "tensor_parallel_degree": 1,
    "context_parallel_degree": 1,
    "offload": [],
}


def llama(block_count: int) -> ResolvedModel:
    """Llama-3-8B with fewer blocks."""
    whole = read_model("llama-3-8b").resolved
    run = whole.runs[0].model_copy(update={"block_count": block_count})
    return model_document("llama", whole.model_copy(update={"runs": (run,)}))


def a_request(**limits: object) -> Request:
    """Thirteen blocks, of which no two stages hold as many, on 8 H100 in a pipeline."""
    job = Job.from_fields(
        {
            "global_batch_size": 16,
            "sequence_length": 4096,
            "limits": {**LIMITS, "pipeline_parallel_degree": {"min": 2}, **limits},
        },
        source="job",
    )
    return resolved_request(llama(13), read_cluster("8xh100-sxm5-80gb"), job)


def planned(**limits: object) -> Plan:
    request = a_request(**limits)
    found = plan(request.model, request.cluster, request.job.resolved)
    assert isinstance(found, Plan)
    return found


@cache
def fastest() -> Plan:
    return planned(simplicity_ratio=0.0)


def fastest_by_closed_form() -> Solution:
    answer = Inquiry.within(60.0, share_ratio=1.0).ask(a_request())
    assert isinstance(answer, Solution)
    return answer


def simulated_seconds(request: Request, answer: Solution) -> float:
    job = request.job.resolved
    found = predict_simulated(request.workload, request.hardware, job, answer.strategy)
    assert found.simulated is not None
    return found.simulated.step_seconds


def test_the_step_of_a_plan_is_the_simulated_one() -> None:
    prediction = fastest().prediction
    assert prediction.simulated is not None
    assert prediction.step_seconds.p50 == prediction.simulated.step_seconds


def test_a_plan_that_is_slower_than_its_closed_form_gives_way() -> None:
    """Interleaved virtual stages of one and two blocks wait for one another."""
    request, first = a_request(), fastest_by_closed_form()
    assert first.strategy.pipeline_schedule is PipelineSchedule.INTERLEAVED
    assert simulated_seconds(request, first) > 1.01 * first.step_seconds
    assert fastest().strategy.pipeline_schedule is not PipelineSchedule.INTERLEAVED
    assert fastest().prediction.step_seconds.p50 < simulated_seconds(request, first)


@pytest.mark.parametrize("schedule", list(PipelineSchedule))
def test_no_schedule_s_best_plan_is_faster(schedule: PipelineSchedule) -> None:
    request = with_limits(a_request(), pipeline_schedules=(schedule,))
    answer = Inquiry.within(60.0, share_ratio=1.0).ask(request)
    assert isinstance(answer, Solution)
    best = fastest().prediction.step_seconds.p50
    assert best <= simulated_seconds(request, answer) * (1.0 + 1e-9)


def test_virtual_stages_that_wait_little_are_taken_where_those_of_the_best_form_wait() -> None:
    """A tower of 32 blocks before a decoder of 28, four virtual stages on each of four ranks."""
    job = Job.from_fields(
        {
            "global_batch_size": 32,
            "sequence_length": 4096,
            "limits": {
                **LIMITS,
                "activation_checkpointing": ["full"],
                "pipeline_parallel_degree": 4,
                "virtual_pipeline_degree": 4,
                "pipeline_schedules": ["interleaved_1f1b"],
                "simplicity_ratio": 0.0,
            },
        },
        source="job",
    )
    request = resolved_request(read_model("qwen2-vl-7b"), read_cluster("8xh100-sxm5-80gb"), job)
    found = Inquiry.within(60.0, share_ratio=1.0).search(request)
    assert isinstance(found, Found)
    (group,) = found.groups
    best, even = (
        predict_simulated(request.workload, request.hardware, request.job.resolved, strategy)
        for strategy in (group.strategy, group.even)
        if strategy is not None
    )
    assert even.fits
    assert best.closed_form_seconds < even.closed_form_seconds
    assert best.step_seconds.p50 > 1.3 * even.step_seconds.p50
    answer = best_plan(request, inquiry=Inquiry.within(60.0))
    assert isinstance(answer, Solution)
    assert answer.step_seconds <= even.step_seconds.p50 * (1.0 + 1e-9)


def test_each_schedule_is_simulated_however_many_kinds_of_one_come_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One more kind is searched, in the order of closed forms, beside the best of each schedule."""
    monkeypatch.setattr("planner.answers.finalists.FINALISTS", 2)
    best = planned(simplicity_ratio=0.0)
    expected = fastest().prediction.step_seconds.p50
    assert best.prediction.step_seconds.p50 == pytest.approx(expected, rel=1e-9)
    assert best.certificate.closed_form is not None
    assert best.certificate.closed_form.simulated_count > 2


def test_a_search_may_end_once_less_is_left_than_simulation_adds() -> None:
    """Of a closed form of 2 s that takes 2.1 s, 1.9 s and less is to be known; alone, its step.

    Blocks may lie better among virtual stages than the search has them.
    """
    request, first = a_request(), fastest_by_closed_form()
    added = simulated_seconds(request, first) - first.step_seconds
    best = Group(strategy=first.strategy, step_seconds=first.step_seconds)
    assert added > 0.01 * first.step_seconds
    enough = enough_by_simulation(request, best)
    assert first.step_seconds - added <= enough.seconds * (1.0 + 1e-9)
    assert enough.seconds < first.step_seconds
    assert enough.leaves_programs
    alone = a_request(pipeline_parallel_degree=1)
    lone = Inquiry.within(60.0, share_ratio=1.0).ask(alone)
    assert isinstance(lone, Solution)
    known = Group(strategy=lone.strategy, step_seconds=lone.step_seconds)
    assert enough_by_simulation(alone, known).seconds == pytest.approx(lone.step_seconds, rel=1e-9)


def test_a_search_may_end_at_a_simulated_step_that_is_shorter_than_the_closed_form() -> None:
    """No closed form is below it then, and programs are looked into up to there."""
    request, first = a_request(), fastest_by_closed_form()
    simulated = simulated_seconds(request, first)
    slower = Group(strategy=first.strategy, step_seconds=1.5 * simulated)
    enough = enough_by_simulation(request, slower)
    assert 0.0 < enough.seconds <= simulated * (1.0 + 1e-9)
    assert not enough.leaves_programs


def test_the_certificate_has_closed_forms_beside_simulated_steps() -> None:
    certificate, first = fastest().certificate, fastest_by_closed_form()
    said = certificate.closed_form
    assert isinstance(said, ClosedForm)
    assert said.lower_bound_seconds == pytest.approx(first.step_seconds, rel=1e-9)
    assert said.step_seconds > said.lower_bound_seconds
    assert said.least_seconds == said.lower_bound_seconds
    assert said.is_proven
    assert said.simulated_count > 1
    assert certificate.status == "optimal"
    assert certificate.lower_bound_seconds == fastest().prediction.step_seconds.p50


def test_a_frontier_and_what_a_plan_is_held_against_have_the_same_step() -> None:
    """The interleaved plan of the best closed form is taken by none of them."""
    request, expected = a_request(simplicity_ratio=0.0), fastest().prediction.step_seconds.p50
    found = frontier(request, inquiry=Inquiry.within(60.0), point_count=1)
    (whole,) = [point for point in found.points if point.device_count == 8]
    assert whole.step_seconds == pytest.approx(expected, rel=1e-9)
    assert whole.certificate.closed_form == fastest().certificate.closed_form
    planned_again = planned_of(fastest())
    assert planned_again.step_seconds == pytest.approx(expected, rel=1e-9)
    held = best_plan(request, inquiry=Inquiry.within(60.0))
    assert isinstance(held, Solution)
    assert held.step_seconds == pytest.approx(expected, rel=1e-9)


def test_devices_whose_closed_form_alone_meets_a_deadline_are_too_few() -> None:
    request, step_count = a_request(simplicity_ratio=0.0), 1000
    between = 0.5 * (fastest_by_closed_form().step_seconds + fastest().prediction.step_seconds.p50)
    wish = SizingWish(
        tokens=step_count * 16 * 4096,
        days=between * step_count / 86400.0,
        devices=("h100-sxm5-80gb",),
        devices_per_node=8,
        max_devices=8,
    )
    found = size(request.model, request.job.resolved, wish, inquiry=Inquiry.within(60.0))
    assert (found.status, found.binding) == ("none", "deadline")
    assert found.nearest_miss is not None
    assert found.nearest_miss.step_seconds == pytest.approx(
        fastest().prediction.step_seconds.p50, rel=1e-9
    )
    later = wish.model_copy(update={"days": wish.days * 1.1})
    met = size(request.model, request.job.resolved, later, inquiry=Inquiry.within(60.0))
    assert met.answer is not None
    assert met.answer.days <= later.days


def test_a_simpler_plan_is_within_the_tolerance_by_simulated_steps() -> None:
    simple = planned(simplicity_ratio=0.05)
    said = simple.certificate.simplicity
    assert said is not None
    assert said.fastest_step_seconds <= fastest().prediction.step_seconds.p50 * (1.0 + 1e-9)
    assert simple.prediction.step_seconds.p50 <= 1.05 * said.fastest_step_seconds * (1.0 + 1e-9)
    assert len(said.techniques) < len(said.fastest_techniques)


def test_a_lone_stage_is_as_fast_as_its_closed_form() -> None:
    alone = planned(simplicity_ratio=0.0, pipeline_parallel_degree=1)
    said = alone.certificate.closed_form
    assert said is not None
    step = alone.prediction.step_seconds.p50
    assert (said.step_seconds, said.lower_bound_seconds) == pytest.approx((step, step), rel=1e-12)
    assert said.simulated_count == 1
