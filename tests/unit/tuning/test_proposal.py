"""Proposal: the loop over a synthetic truth, from the first plan to the measured certificate."""

import math

import pytest

from planner.errors import InputError
from planner.planning import estimate, estimates
from planner.proof.verify import verify
from planner.requests.inquiry import Inquiry
from planner.requests.references import read_model
from planner.requests.resolution import cluster_document, model_document, resolved_request
from planner.schema.cluster import NodeGroup
from planner.schema.job import Limits
from planner.schema.plan import Interval
from planner.schema.strategy import Strategy
from planner.schema.tuning import MeasuredCertificate, Tuning, TuningBudget, TuningTrial
from planner.space.degrees import enumerate_configurations
from planner.tuning.knowledge import Knowledge, degrees_of
from planner.tuning.proposal import Proposal, next_of, plan_of
from planner.units import GIB
from tests.builders import a_cluster, a_job, a_model

FEW = {"zero_stages": (0,), "activation_checkpointing": ("none",), "offload": ()}


def a_tuning(*, job=None, model=None, cluster=None, **budget):
    job = job or a_job(limits=Limits(**FEW))
    model = model or model_document("tiny", a_model())
    cluster = cluster or cluster_document("8xh100", a_cluster())
    return Tuning(
        model=model,
        cluster=cluster,
        job=resolved_request(model, cluster, job).job,
        budget=TuningBudget(**{"runs": 6, **budget}),
        planner_version="test",
    )


def a_trial(strategy, **changes):
    fields = {
        "strategy": strategy,
        "description": "a plan",
        "predicted": Interval(p10=0.9, p50=1.0, p90=1.1),
        "fits_probability": 0.99,
        "outcome": "measured",
        "step_seconds": (1.0,),
        "run_seconds": 30.0,
    }
    return TuningTrial(**{**fields, **changes})


def after(tuning, *trials):
    return tuning.model_copy(update={"trials": (*tuning.trials, *trials)})


def predicted_seconds(tuning, strategy):
    """The simulated step that the shipped cost model predicts."""
    answer = estimate(tuning.model, tuning.cluster, tuning.job.resolved, strategy)
    return answer.prediction.step_seconds.p50


def degrees(strategy):
    return strategy.tensor_parallel_degree, strategy.pipeline_parallel_degree


def finished(tuning, truth):
    """The tuning with a certificate, where a plan takes `truth` times as long as predicted."""
    for _ in range(20):
        answer = next_of(tuning)
        if isinstance(answer, MeasuredCertificate):
            return tuning, answer
        strategy = answer.candidates[0].strategy
        seconds = truth(strategy) * predicted_seconds(tuning, strategy)
        tuning = after(tuning, a_trial(strategy, step_seconds=(seconds,)))
    raise AssertionError("the budget was not kept")


def first_of(tuning):
    answer = next_of(tuning)
    assert isinstance(answer, Proposal)
    return answer.candidates[0]


@pytest.mark.slow
def test_the_best_is_found_where_the_first_guess_is_slow():
    """Plans of the first guess's degrees take twice as long: the best of the others wins.

    No plan is tried twice on the way.
    """
    group = NodeGroup(name="h100", device="h100-sxm5-80gb", node_count=1, devices_per_node=4)
    cluster = cluster_document("four", a_cluster(name="four", node_groups=(group,)))
    job = a_job(global_batch_size=64, sequence_length=1024, limits=Limits(**FEW))
    tuning = a_tuning(model=read_model("gpt2-xl"), cluster=cluster, job=job)
    slow = degrees(first_of(tuning).strategy)
    request = resolved_request(tuning.model, tuning.cluster, tuning.job.resolved)
    groups = Inquiry.within(20.0).best_groups(request, 8)
    wanted = next(one for one in groups if degrees(one.strategy) != slow)
    wanted_seconds = predicted_seconds(tuning, wanted.strategy)
    assert wanted_seconds < 2.0 * groups[0].step_seconds
    done, certificate = finished(tuning, lambda own: 2.0 if degrees(own) == slow else 1.0)
    assert done.trials[certificate.best_trial - 1].typical_seconds == certificate.step_seconds
    assert certificate.step_seconds <= wanted_seconds
    assert certificate.run_count == len(done.trials) <= 6
    assert len({trial.strategy for trial in done.trials}) == len(done.trials)


def test_a_tuning_that_is_read_again_goes_on_as_it_would_have():
    tuning = a_tuning()
    tuning = after(tuning, a_trial(first_of(tuning).strategy))
    again = Tuning.from_fields(tuning.model_dump(mode="json"), source="its file")
    assert again == tuning
    assert first_of(again) == first_of(tuning)


def test_the_budget_of_runs_and_of_minutes_ends_it():
    tuning = a_tuning(runs=1)
    tuning = after(tuning, a_trial(first_of(tuning).strategy, run_seconds=60.0))
    assert next_of(tuning).ended_by == "runs"
    longer = tuning.model_copy(update={"budget": TuningBudget(runs=2, minutes=1.0)})
    assert next_of(longer).ended_by == "minutes"


def test_a_proposal_says_what_no_plan_is_likely_to_be_faster_than():
    """Before anything is measured already; no candidate's own optimistic end lies below."""
    proposal = next_of(a_tuning())
    ends = [one.prospect.step_seconds.p10 for one in proposal.candidates]
    assert len(ends) > 1
    assert 0.5 * min(ends) < proposal.optimistic_seconds <= min(ends)


def test_the_first_two_trials_are_of_two_degrees():
    """By what is predicted alone, the second best of all is the first with another micro-batch."""
    done, certificate = finished(a_tuning(runs=2), lambda _: 1.0)
    assert certificate.run_count == 2
    assert len({degrees_of(trial.strategy) for trial in done.trials}) == 2


def test_a_machine_that_is_faster_than_its_profile_is_searched_alike():
    """A factor of all steps says nothing of which plan is faster."""
    plain, claim = finished(a_tuning(runs=4), lambda _: 1.0)
    faster, claim_there = finished(a_tuning(runs=4), lambda _: 0.5)
    assert [one.strategy for one in plain.trials] == [one.strategy for one in faster.trials]
    assert claim_there.faster_ratio == pytest.approx(claim.faster_ratio, abs=0.01)


def test_what_failed_is_not_tried_again():
    first = first_of(a_tuning()).strategy
    failed = after(a_tuning(), a_trial(first, outcome="failed", step_seconds=(), reason="died"))
    assert first_of(failed).strategy != first


@pytest.mark.slow
def test_the_bound_holds_for_every_plan_of_the_space():
    """Without pipelines and with one choice for all layers there is one plan a configuration."""
    limits = Limits(**FEW, pipeline_parallel_degree=1)
    tuning = a_tuning(job=a_job(limits=limits), runs=2)
    done, certificate = finished(tuning, lambda own: 1.5 - 0.05 * own.micro_batch_size)
    request = Knowledge.of(done).request
    space = enumerate_configurations(
        request.model.resolved, request.hardware, request.job.resolved
    ).configurations
    rows = [space.row(index) for index in range(len(space))]
    every = [one_plan(done, row) for row in rows]
    intervals = [one.prediction.step_seconds for one in every]
    assert certificate.configurations_total == len(every)
    assert certificate.lower_bound_seconds == pytest.approx(min(one.p50 for one in intervals))
    assert certificate.optimistic_seconds <= min(one.p10 for one in intervals)
    assert certificate.optimistic_seconds > 0.5 * min(one.p10 for one in intervals)
    shorter = 1.0 - certificate.optimistic_seconds / certificate.step_seconds
    assert certificate.faster_ratio == pytest.approx(max(shorter, 0.0))


def one_plan(tuning, row):
    """The price of the plan of a configuration, under all that was learnt."""
    fields = {name: getattr(row, name) for name in row.__slots__ if name != "device_order"}
    request = Knowledge.of(tuning).request
    strategy = Strategy(**fields, zero_stage=0, activation_checkpointing="none", offload=())
    (answer,) = estimates(request.model, request.cluster, request.job.resolved, [strategy])
    return answer


@pytest.fixture(scope="module")
def tight():
    """GPT-2 XL on two devices that are nearly filled by the fastest plan."""
    group = NodeGroup(
        name="h100",
        device="h100-sxm5-80gb",
        node_count=1,
        devices_per_node=2,
        memory_bytes=24.0 * GIB,
    )
    cluster = a_cluster(name="two", node_groups=(group,))
    job = a_job(global_batch_size=32, sequence_length=1024, limits=Limits(offload=()))
    model = read_model("gpt2-xl")
    return a_tuning(model=model, cluster=cluster_document("two", cluster), job=job)


def test_what_ran_out_of_memory_is_not_tried_again_nor_what_needs_more(tight):
    first = first_of(tight)
    tuning = after(tight, a_trial(first.strategy, outcome="out_of_memory", step_seconds=()))
    answer = next_of(tuning)
    assert isinstance(answer, Proposal)
    (before,) = estimates(tight.model, tight.cluster, tight.job.resolved, [first.strategy])
    ran_out = before.prediction.fits_probability
    assert ran_out < 0.99
    strategies = [one.strategy for one in answer.candidates]
    priced = estimates(tight.model, tight.cluster, tight.job.resolved, strategies)
    assert all(one.prediction.fits_probability > ran_out for one in priced)
    assert all(one.prospect.fits_probability >= 0.95 - 1e-6 for one in answer.candidates)


def shipped_chance(tuning, strategy):
    """The chance of fitting as the shipped model has it, and the tensors that it predicts."""
    answer = estimate(tuning.model, tuning.cluster, tuning.job.resolved, strategy)
    stages = answer.prediction.stages
    tensors = max(stage.peak_memory_bytes - stage.memory_bytes.runtime for stage in stages)
    return answer.prediction.fits_probability, tensors


def with_peaks(tuning, truth, *, count):
    """The tuning after `count` trials whose tensors are `truth` times those that are predicted."""
    for _ in range(count):
        strategy = first_of(tuning).strategy
        _, tensors = shipped_chance(tuning, strategy)
        tuning = after(tuning, a_trial(strategy, peak_memory_bytes=truth * tensors))
    return tuning


def test_peaks_that_were_measured_to_be_larger_leave_smaller_plans(tight):
    """All tensors of this machine are a quarter larger than predicted, and its plans are alike."""
    first = first_of(tight).strategy
    tuning = with_peaks(tight, 1.25, count=1)
    answer = next_of(tuning)
    assert isinstance(answer, Proposal)
    before, tensors = shipped_chance(tight, first)
    assert before == pytest.approx(0.95, abs=0.02)
    for one in answer.candidates:
        chance, less = shipped_chance(tight, one.strategy)
        assert one.prospect.fits_probability >= 0.95 - 1e-6
        assert chance > one.prospect.fits_probability
        assert chance > 0.99
        assert less < tensors


def test_peaks_that_were_measured_as_predicted_allow_fuller_plans(tight):
    """What four trials leave open is less than what is shipped, so that less has to stay free."""
    tuning = with_peaks(tight, 1.0, count=4)
    request = Knowledge.of(tuning).request
    found = Inquiry.within(20.0).best_groups(request, 1)[0]
    chance, _ = shipped_chance(tight, found.strategy)
    assert chance < 0.93
    plan = plan_of(tuning, found.strategy, number=5)
    verify(plan)
    assert plan.prediction.fits_probability >= 0.95 - 1e-6
    said = [one for one in plan.explanation.assumptions if one.startswith("by 4 trials, peaks")]
    assert "taken for 1.00 of what is predicted" in said[0]


def test_the_plan_of_a_trial_goes_by_the_memory_that_was_known_before_it(tight):
    """What ran out of memory later does not make the plan one that does not fit."""
    tuning = with_peaks(tight, 1.0, count=1)
    first = tuning.trials[0].strategy
    for _ in range(2):
        other = first_of(tuning).strategy
        tuning = after(tuning, a_trial(other, outcome="out_of_memory", step_seconds=()))
    verify(plan_of(tuning, first, number=1))


def test_a_trial_is_a_plan_that_survives_verification(tight):
    found = plan_of(tight, first_of(tight).strategy, number=1)
    verify(found)
    assert math.isfinite(found.prediction.step_seconds.p50)


@pytest.mark.parametrize(("bound_ratio", "status"), [(0.9, "feasible"), (1.1, "optimal")])
def test_the_plan_of_a_tuning_that_ended_survives_verification(tight, bound_ratio, status):
    strategy = first_of(tight).strategy
    ended = MeasuredCertificate(
        ended_by="runs",
        best_trial=1,
        step_seconds=1.0,
        run_count=1,
        out_of_memory_count=0,
        failed_count=0,
        configurations_total=1,
        lower_bound_seconds=bound_ratio * predicted_seconds(tight, strategy),
        optimistic_seconds=0.0,
        faster_ratio=0.0,
    )
    found = plan_of(tight.model_copy(update={"certificate": ended}), strategy, number=1)
    verify(found)
    assert found.certificate.status == status


def test_a_job_that_asks_for_least_memory_is_refused():
    with pytest.raises(InputError, match=r"job\.objective"):
        next_of(a_tuning(job=a_job(objective="memory", limits=Limits(**FEW))))


def one_device(memory_gib):
    group = NodeGroup(
        name="h100",
        device="h100-sxm5-80gb",
        node_count=1,
        devices_per_node=1,
        memory_bytes=memory_gib * GIB,
    )
    return cluster_document("one", a_cluster(name="one", node_groups=(group,)))


def test_a_model_that_does_not_fit_has_no_trial():
    tuning = a_tuning(model=read_model("llama-3-8b"), cluster=one_device(8.0))
    answer = next_of(tuning)
    assert isinstance(answer, MeasuredCertificate)
    assert (answer.ended_by, answer.best_trial, answer.run_count) == ("exhausted", None, 0)


def test_where_nothing_is_likely_to_fit_any_more_the_likeliest_is_tried():
    fused = {"fused_elementwise": True, "limits": Limits(**FEW)}
    job = a_job(global_batch_size=8, sequence_length=1024, **fused)
    tuning = a_tuning(model=read_model("gpt2-xl"), cluster=one_device(41.4), job=job)
    first = first_of(tuning)
    tuning = after(tuning, a_trial(first.strategy, outcome="out_of_memory", step_seconds=()))
    second = first_of(tuning)
    assert first.prospect.fits_probability >= 0.95 > second.prospect.fits_probability
    assert second.strategy.micro_batch_size < first.strategy.micro_batch_size


def test_reserved_memory_teaches_less_than_as_much_of_tensors():
    """What an allocator holds beside tensors is expected of it, so that tensors took less."""
    tuning = a_tuning()
    strategy = next_of(tuning).candidates[0].strategy

    def learnt(kind):
        trial = a_trial(strategy, peak_memory_bytes=4.0 * GIB, peak_memory_kind=kind)
        job = Knowledge.of(after(tuning, trial)).request.job.resolved
        return job.calibration.peaks.log_ratio

    assert learnt("reserved") < learnt("tensors")
