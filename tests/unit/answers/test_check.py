"""A check fails for what it names, and for nothing else."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from planner.answers.check import check
from planner.cli.views.check import junit_report
from planner.errors import InputError
from planner.planning import plan
from planner.requests.variation import with_job, with_limits
from planner.schema.check import CheckReport
from planner.schema.plan import Plan
from planner.schema.strategy import Strategy
from tests.tight_requests import a_tight_request

REQUEST = a_tight_request()


@pytest.fixture(scope="module")
def planned() -> Plan:
    found = plan(REQUEST.model, REQUEST.cluster, REQUEST.job.resolved)
    assert isinstance(found, Plan)
    return found


def outcomes(report: CheckReport) -> dict[str, str]:
    return {one.name: one.outcome for one in report.results}


def test_a_plan_passes_its_own_check(planned):
    report = check(REQUEST, planned.strategy, source="plan.json", baseline=planned)
    assert report.status == "passed"
    assert outcomes(report) == {"legal": "passed", "fits": "passed", "not_slower": "passed"}
    assert report.slowdown_ratio == pytest.approx(0.0, abs=1e-12)


def test_without_a_baseline_speed_is_not_checked(planned):
    report = check(REQUEST, planned.strategy, source="plan.json")
    assert outcomes(report) == {"legal": "passed", "fits": "passed"}
    assert report.baseline_id is None


def test_an_illegal_strategy_fails_and_skips_the_rest(planned):
    report = check(REQUEST, Strategy(tensor_parallel_degree=3), source="s", baseline=planned)
    assert report.status == "failed"
    assert outcomes(report) == {"legal": "failed", "fits": "skipped", "not_slower": "skipped"}
    assert "16 attention heads" in report.results[0].detail


def test_a_strategy_that_does_not_fit_fails_for_that(planned):
    report = check(REQUEST, Strategy(data_parallel_degree=4), source="s", baseline=planned)
    assert outcomes(report) == {"legal": "passed", "fits": "failed", "not_slower": "passed"}
    assert "stage 0" in report.results[1].detail
    assert report.excesses[0].excess_bytes > 0.0


def test_a_strategy_below_the_chance_that_the_job_asks_for_fails_with_both_chances():
    """It fits with the headroom that is asked for, and might not in truth."""
    least = with_limits(REQUEST, fits_probability=0.5)
    tight = plan(least.model, least.cluster, least.job.resolved)
    assert isinstance(tight, Plan)
    chance = tight.prediction.fits_probability
    assert 0.5 < chance < 0.95
    for asked, outcome in ((0.95, "failed"), (chance - 0.01, "passed")):
        held = with_limits(REQUEST, fits_probability=asked)
        fits = check(held, tight.strategy, source="s").results[1]
        assert (fits.name, fits.outcome) == ("fits", outcome)
        assert f"chance {chance:.1%}" in fits.detail
        assert ("95% asked for" in fits.detail) is (outcome == "failed")


def slow() -> Strategy:
    return Strategy(tensor_parallel_degree=4, activation_checkpointing="full")


def test_a_slower_strategy_fails_by_how_much_slower_it_is(planned):
    report = check(REQUEST, slow(), source="s", baseline=planned)
    assert outcomes(report) == {"legal": "passed", "fits": "passed", "not_slower": "failed"}
    step = report.prediction.step_seconds.p50
    assert report.slowdown_ratio == pytest.approx(step / planned.prediction.step_seconds.p50 - 1.0)
    assert report.causes[0].difference_seconds > 0.0


def test_a_slowdown_that_is_allowed_passes(planned):
    ratio = check(REQUEST, slow(), source="s", baseline=planned).slowdown_ratio
    for allowed, status in ((ratio * 1.01, "passed"), (ratio * 0.99, "failed")):
        report = check(REQUEST, slow(), source="s", baseline=planned, max_slowdown_ratio=allowed)
        assert report.status == status


def test_a_larger_batch_is_compared_by_tokens_a_second(planned):
    doubled = with_job(REQUEST, global_batch_size=32)
    strategy = Strategy(
        tensor_parallel_degree=2, data_parallel_degree=2, zero_stage=3,
        activation_checkpointing="full",
    )  # fmt: skip
    one = check(REQUEST, strategy, source="s", baseline=planned)
    two = check(doubled, strategy, source="s", baseline=planned)
    assert two.prediction.step_seconds.p50 > 1.8 * one.prediction.step_seconds.p50
    assert two.slowdown_ratio < one.slowdown_ratio


def test_a_baseline_of_another_price_is_priced_again(planned):
    step = planned.prediction.step_seconds.model_copy(update={"p50": 0.001})
    old = planned.model_copy(
        update={"prediction": planned.prediction.model_copy(update={"step_seconds": step})}
    )
    report = check(REQUEST, planned.strategy, source="plan.json", baseline=old)
    assert report.status == "passed"
    assert report.baseline_step_seconds == planned.prediction.step_seconds.p50


def test_a_baseline_that_is_no_longer_legal_fails(planned):
    odd = planned.strategy.model_copy(update={"tensor_parallel_degree": 3})
    report = check(
        REQUEST,
        planned.strategy,
        source="plan.json",
        baseline=planned.model_copy(update={"strategy": odd}),
    )
    assert outcomes(report)["not_slower"] == "failed"
    assert "no longer legal" in report.results[2].detail


def test_the_junit_report_has_a_case_for_every_check(planned):
    report = check(REQUEST, Strategy(tensor_parallel_degree=3), source="s\x00<", baseline=planned)
    suites = ET.fromstring(junit_report(report))  # noqa: S314 - our own report
    suite = suites.find("testsuite")
    assert suite.attrib["failures"] == "1"
    assert suite.attrib["skipped"] == "2"
    assert [case.attrib["name"] for case in suite] == ["legal", "fits", "not_slower"]
    assert suite[0].find("failure").text == report.results[0].detail
    assert suite[1].find("skipped") is not None


def test_a_baseline_of_another_model_is_refused(planned):
    other = planned.model.resolved.model_copy(update={"vocabulary_size": 256})
    model = planned.model.model_copy(update={"resolved": other})
    with pytest.raises(InputError, match="baseline: is a plan of another model than"):
        check(REQUEST, slow(), source="s", baseline=planned.model_copy(update={"model": model}))


def test_a_baseline_of_the_same_model_by_another_name_is_compared(planned):
    other = planned.model.resolved.model_copy(update={"name": "config"})
    model = planned.model.model_copy(update={"resolved": other})
    report = check(
        REQUEST,
        planned.strategy,
        source="plan.json",
        baseline=planned.model_copy(update={"model": model}),
    )
    assert report.status == "passed"


def test_a_baseline_for_other_sequences_is_refused(planned):
    shorter = with_job(REQUEST, sequence_length=1024)
    with pytest.raises(InputError, match="sequence_length 1024"):
        check(shorter, planned.strategy, source="s", baseline=planned)
