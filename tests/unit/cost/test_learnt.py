"""Learnt: what measured runs say of others, worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from planner.cost.intervals import SHARED_RATIO, WIDTH
from planner.cost.learnt import Learnt, points_of_runs
from planner.planning import estimate, plan, resolved_cluster, resolved_model
from planner.schema.job import Calibration, Job, LearntRun, Precision, Stack
from planner.schema.plan import Plan
from tests.learnt_runs import a_learnt_run


def correlation(**changes: Any) -> float:
    """Return how far a run correlates with one that differs by `changes`."""
    first, second = (points_of_runs([a_learnt_run(**own)]) for own in ({}, changes))
    return float(first.correlations(second).item())


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 1.0),
        ({"device_count": 16}, 0.882497),  # exp(-1/8)
        ({"micro_batch_size": 4, "tensor_parallel_degree": 2}, 0.837967),  # exp(-sqrt(2)/8)
        ({"device": "h100-sxm5-80gb"}, 0.606531),  # exp(-4/8)
        ({"stack": Stack.MEGATRON, "precision": Precision.FP8}, 0.493069),  # exp(-sqrt(32)/8)
    ],
)
def test_runs_are_less_alike_with_each_doubling_and_each_other_kind(
    changes: dict[str, Any], expected: float
) -> None:
    assert correlation(**changes) == pytest.approx(expected, abs=1e-6)


def test_one_run_is_believed_by_what_runs_share_over_what_is_its_own() -> None:
    """0.2^2 / (0.2^2 + 0.1^2) = 0.8 of 0.5, which leaves 0.04 - 0.8 x 0.04 = 0.008."""
    run = a_learnt_run(log_error=0.5, shared_deviation=0.2, own_deviation=0.1)
    learnt, points = Learnt.of([run]), points_of_runs([run])
    assert learnt.log_factors(points, deviation=0.2).item() == pytest.approx(0.4)
    assert learnt.covariance(points, deviation=0.2).item() == pytest.approx(0.008)


def test_a_run_says_less_of_another_device() -> None:
    """0.606531 of it, and 0.04 - 0.606531^2 x 0.032 are left."""
    run = a_learnt_run(log_error=0.5, shared_deviation=0.2, own_deviation=0.1)
    learnt, other = Learnt.of([run]), points_of_runs([a_learnt_run(device="h100-sxm5-80gb")])
    assert learnt.log_factors(other, deviation=0.2).item() == pytest.approx(0.242612, abs=1e-6)
    assert learnt.covariance(other, deviation=0.2).item() == pytest.approx(0.028228, abs=1e-6)


def test_each_run_is_held_against_what_all_others_say() -> None:
    """Of two alike the other says 0.8: 0.1 - 0.8 x 0.5 and 0.5 - 0.8 x 0.1, each +- its own.

    What is left of the shared part is 0.008, and 0.01 is the run's own: 0.018.
    """
    near, far = (
        a_learnt_run(log_error=error, shared_deviation=0.2, own_deviation=0.1)
        for error in (0.1, 0.5)
    )
    off, variances = Learnt.of([near, far]).left_out()
    assert off == pytest.approx([-0.3, 0.42])
    assert variances == pytest.approx([0.018, 0.018])


def test_two_runs_that_agree_say_more_than_one() -> None:
    """2 x 0.04 / (2 x 0.04 + 0.01) = 8/9 of what both say."""
    runs = [a_learnt_run(log_error=0.3, shared_deviation=0.2, own_deviation=0.1)] * 2
    found = Learnt.of(runs).log_factors(points_of_runs(runs[:1]), deviation=0.2)
    assert found.item() == pytest.approx(0.3 * 8 / 9)


SHARED = WIDTH * math.sqrt(SHARED_RATIO) / 1.2815516
MODEL, CLUSTER = resolved_model("llama-3-8b"), resolved_cluster("8xa100-sxm4-80gb")
JOB = Job(global_batch_size=16, sequence_length=2048)


def planned(job: Job = JOB) -> Plan:
    """Return the plan of eight billion parameters on one node."""
    answer = plan(MODEL, CLUSTER, job)
    assert isinstance(answer, Plan)
    return answer


def learning(answer: Plan, log_error: float, **changes: Any) -> Job:
    """Return the job after a run of the plan itself."""
    strategy = answer.strategy
    run = a_learnt_run(
        device="a100-sxm4-80gb",
        stack=Stack.TORCH,
        precision=answer.job.resolved.precision,
        device_count=8,
        tensor_parallel_degree=strategy.tensor_parallel_degree,
        pipeline_parallel_degree=strategy.pipeline_parallel_degree,
        micro_batch_size=strategy.micro_batch_size,
        sequence_length=2048,
        parameter_count=8_030_261_248,
        log_error=log_error,
        shared_deviation=SHARED,
        **changes,
    )
    calibration = Calibration(name="ours", runs=(run,))
    return answer.job.resolved.model_copy(update={"calibration": calibration})


def test_a_run_that_was_measured_moves_its_own_step_and_each_part_of_it() -> None:
    """With half as much of its own as is shared, four fifths of log 1.5: 1.3832 times as long."""
    answer = planned()
    job = learning(answer, math.log(1.5), own_deviation=SHARED / 2.0)
    before = answer.prediction
    after = estimate(answer.model, answer.cluster, job, answer.strategy).prediction
    assert after.step_seconds.p50 / before.step_seconds.p50 == pytest.approx(1.383162, abs=1e-5)
    parts, moved = (one.breakdown_seconds.model_dump() for one in (before, after))
    assert [moved[name] for name in parts] == pytest.approx(
        [1.383162 * seconds for seconds in parts.values()], rel=1e-5
    )


def test_a_run_that_was_measured_narrows_its_own_interval_and_says_so() -> None:
    """Of what is shared 1 / sqrt(5) is left; its own stays."""
    answer = planned()
    job = learning(answer, 0.0, own_deviation=SHARED / 2.0)
    after = estimate(answer.model, answer.cluster, job, answer.strategy).prediction
    before = answer.prediction
    assert after.step_seconds.p90 < before.step_seconds.p90
    own, shared = after.interval_causes
    assert own == before.interval_causes[0]
    assert shared.cause == "what calibration ours leaves open, of 1 measured"
    assert math.log1p(shared.ratio) == pytest.approx(1.281552 * SHARED / math.sqrt(5.0), abs=1e-4)


def test_a_plan_minimises_the_step_that_was_learnt() -> None:
    """The certificate's value is the predicted step, also where runs move layouts differently."""
    answer = planned()
    moved = planned(learning(answer, math.log(3.0), own_deviation=0.02))
    step = moved.prediction.step_seconds.p50
    assert moved.certificate.objective_value == pytest.approx(step, rel=1e-9)
    stayed = estimate(
        answer.model, answer.cluster, moved.job.resolved, answer.strategy
    ).prediction.step_seconds.p50
    assert step <= stayed * (1.0 + 1e-9)


def test_what_all_runs_say_lies_between_them() -> None:
    runs = [a_learnt_run(log_error=error, device_count=2**n) for n, error in ((3, 0.2), (7, -0.1))]
    between = points_of_runs([a_learnt_run(device_count=2**5)])
    found = Learnt.of(runs).log_factors(between, deviation=0.19)
    assert np.all((found > -0.1) & (found < 0.2))


def test_a_calibration_keeps_a_run_that_says_how_far_off_it_was() -> None:
    assert LearntRun.model_validate(a_learnt_run().model_dump()) == a_learnt_run()
