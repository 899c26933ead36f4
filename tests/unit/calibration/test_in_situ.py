"""A machine's profile is corrected by its own steps, within what is physically possible."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import pytest

from planner.calibration.in_situ import InSitu, corrected, probes
from planner.calibration.parts import priced_seconds
from planner.calibration.row import Row
from planner.cli.machine_profile import measured_cluster
from planner.cli.profile import in_situ_lines
from planner.errors import InputError
from planner.hardware import profile_of
from planner.importers.clusters import cluster_from_short_form
from planner.planning import estimate, resolved_cluster, resolved_model
from planner.planning import plan as planned
from planner.schema.cluster import Cluster
from planner.schema.figures import AttentionFigure, ProductFigure
from planner.schema.job import Job, Precision
from planner.schema.measured_run import MeasuredRun
from planner.schema.plan import Plan
from planner.schema.scalars import Scalars
from planner.schema.strategy import Strategy
from planner.schema.trial import Trial
from planner.validation.case import case_of
from tests.calibration_rows import factors_of
from tests.unit.cli.test_machine_profile import figures

TRUTH = Scalars(compute_efficiency_ratio=0.7, memory_efficiency_ratio=1.3, host_overhead_ratio=5.0)


@functools.cache
def alone() -> Cluster:
    """The machine as its kernels alone say that it is."""
    return measured_cluster(figures())


@functools.cache
def plans() -> tuple[Plan, ...]:
    """The plans to train on it."""
    return probes(alone())


def test_norms_are_priced_as_torch_runs_them_on_the_kind_of_device() -> None:
    """`torch.nn.RMSNorm` is one kernel on CUDA, and operations of their own on a CPU."""
    on_gpu = probes(cluster_from_short_form("1xh100-sxm5-80gb"))
    assert {plan.job.resolved.fused_norms for plan in on_gpu} == {True}
    assert {plan.job.resolved.fused_norms for plan in plans()} == {False}


def _step_seconds(plan: Plan, scalars: Scalars) -> float:
    """The step on a machine that is as `scalars` say, by the cost model itself."""
    run = MeasuredRun(id="truth", family="truth", plan=plan, step_time_s=1.0)
    return priced_seconds(Row(case=case_of(run), measured_seconds=1.0), factors_of(scalars))


def _in_situ(scalars: Scalars, slowness: Callable[[int], float] = lambda _round: 1.0) -> InSitu:
    steps = [(plan.strategy, _step_seconds(plan, scalars)) for plan in plans()]
    trials = [
        Trial(strategy=strategy, step_seconds=tuple(seconds * slowness(r) for r in range(4)))
        for strategy, seconds in steps
    ]
    return corrected(alone(), plans(), trials)


@functools.cache
def _quiet() -> InSitu:
    """What a quiet machine's steps say."""
    return _in_situ(TRUTH)


def test_every_way_to_split_a_model_is_tried():
    degrees = {
        (s.tensor_parallel_degree, s.pipeline_parallel_degree, s.shard_degree)
        for s in (plan.strategy for plan in plans())
    }
    assert degrees == {(1, 1, 4), (2, 1, 2), (1, 2, 2), (1, 4, 1)}
    assert {plan.model.resolved.name for plan in plans()} == {"narrow", "wide", "long"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("compute_efficiency_ratio", 0.7),
        ("memory_efficiency_ratio", 1.3),
        ("host_overhead_ratio", 5.0),
    ],
)
def test_the_scalar_that_made_the_steps_is_found(name: str, value: float):
    found = _in_situ(Scalars(**{name: value})).scalars
    assert getattr(found, name) == pytest.approx(value, rel=0.15)
    others = found.model_copy(update={name: 1.0}).model_dump().values()
    assert list(others) == pytest.approx([1.0] * len(others), rel=0.1)


def test_a_slow_network_is_found_more_than_half_of_the_way():
    """In logarithms: little of the steps is communication, and the prior holds against it."""
    found = _in_situ(Scalars(communication_efficiency_ratio=0.6)).scalars
    assert 0.6 <= found.communication_efficiency_ratio <= math.sqrt(0.6)


def test_another_model_takes_what_the_machine_makes_of_it():
    """A model and layouts that had no part in the fit, off by the error at most that it states."""
    here = _quiet()
    model = resolved_model("tiny-llama-cpu")
    job = Job(global_batch_size=16, sequence_length=128, precision="fp32")
    for strategy in (Strategy(data_parallel_degree=4), Strategy(tensor_parallel_degree=4)):
        there = resolved_cluster(alone().model_dump(mode="json"))
        found = estimate(model, there, job, strategy)
        own = {"job": found.job, "strategy": found.strategy, "prediction": found.prediction}
        answer = planned(model, there, job)
        assert isinstance(answer, Plan)
        true = _step_seconds(answer.model_copy(update=own), TRUTH)
        said = estimate(
            model, resolved_cluster(here.cluster.model_dump(mode="json")), job, strategy
        ).prediction.step_seconds
        assert said.p50 == pytest.approx(true, rel=0.05)
        assert said.p90 / said.p50 == pytest.approx(math.e ** (1.2815515655 * here.error_ratio))


def test_no_rate_is_better_than_is_possible():
    """Steps in a tenth of the time that products alone take: somebody's clock is wrong."""
    found = _in_situ(Scalars(compute_efficiency_ratio=10.0, host_overhead_ratio=0.1))
    assert found.scalars.compute_efficiency_ratio <= 1.0
    assert found.scalars.attention_efficiency_ratio <= 1.0
    assert found.scalars.host_overhead_ratio >= 1.0
    profile = profile_of(found.cluster, found.cluster.devices[0])
    # 12 bytes an addition, of which products in fp32 make 25e9 a second
    assert profile.memory_bandwidth_gb_per_second <= 300.0 * (1 + 1e-9)
    assert profile.in_situ_efficiency is not None
    assert profile.in_situ_efficiency <= 1.0


def test_a_busy_machine_is_said_and_makes_the_interval_wider():
    quiet, busy = _quiet(), _in_situ(TRUTH, slowness=lambda turn: (1.0, 1.0, 1.3, 1.3)[turn])
    assert not quiet.was_busy
    assert quiet.variation_ratio == pytest.approx(0.0)
    assert busy.was_busy
    assert busy.variation_ratio == pytest.approx(0.3)
    # half of the rounds at 1, half at 1.3: the deviation of their logarithm is log(1.3) / 2
    assert busy.error_ratio == pytest.approx(math.hypot(0.1312, quiet.error_ratio), rel=0.05)
    assert any("the machine was busy: its profile varied by 30%" in x for x in in_situ_lines(busy))
    assert not any("busy" in line for line in in_situ_lines(quiet))


def test_rounds_that_agree_at_last_count_alone():
    found = _in_situ(TRUTH, slowness=lambda turn: 3.0 if turn == 0 else 1.0)
    assert not found.was_busy
    assert found.variation_ratio == pytest.approx(0.0)
    assert found.scalars == _quiet().scalars


def test_a_machine_that_trains_nothing_is_refused_with_the_reason():
    trials = [Trial(strategy=plan.strategy, refusal="no such schedule") for plan in plans()]
    with pytest.raises(InputError, match=r"0 of 12 plans; no such schedule"):
        corrected(alone(), plans(), trials)


def test_a_single_rank_has_probes_too():
    lone = measured_cluster(figures(rank_count=1, collectives=[]))
    assert {plan.strategy.world_size for plan in probes(lone)} == {1}


@functools.cache
def _gpu() -> Cluster:
    """One GPU whose kernels alone are as fast as an H200's."""
    products = [
        ProductFigure(
            precision=precision,
            rows=8192,
            inner_size=inner,
            outer_size=8192,
            seconds=2.0 * 8192 * 8192 * (inner + 90) / rate,
        )
        for precision, rate in ((Precision.BF16, 7.6e14), (Precision.FP32, 5e13))
        for inner in (512, 8192)
    ]
    attentions = [
        AttentionFigure(
            precision=Precision.BF16,
            batch=4,
            head_count=32,
            head_size=128,
            sequence_length=length,
            forward_seconds=4.0 * 32 * 128 * length**2 * 2.0 / 6e14,
            backward_seconds=4.0 * 32 * 128 * length**2 * 5.0 / 6e14,
        )
        for length in (1024, 16384)
    ]
    return measured_cluster(
        figures(
            device_kind="cuda",
            rank_count=1,
            collectives=[],
            products=products,
            attentions=attentions,
            device_memory_bytes=1.5e11,
            memory_bytes_per_second=4.3e12,
            kernel_seconds=2e-6,
            host_seconds_per_kernel=15e-6,
            lone_speed_ratio=1.0,
            hidden_reduce_ratio=1.0,
        )
    )


def test_what_a_gpu_loses_inside_a_step_is_found():
    """Steps of the three models tell products, attention, memory and launches apart."""
    truth = Scalars(
        compute_efficiency_ratio=0.8, memory_efficiency_ratio=0.9, host_overhead_ratio=3.0
    )
    asked = probes(_gpu())
    assert {plan.job.resolved.precision for plan in asked} == {Precision.BF16}
    trials = [
        Trial(strategy=plan.strategy, step_seconds=(_step_seconds(plan, truth),) * 4)
        for plan in asked
    ]
    found = corrected(_gpu(), asked, trials)
    assert found.scalars.compute_efficiency_ratio == pytest.approx(0.8, rel=0.05)
    assert found.scalars.host_overhead_ratio == pytest.approx(3.0, rel=0.05)
    assert found.error_ratio < 0.03


def test_the_memory_of_a_gpu_is_no_faster_than_alone():
    asked = probes(_gpu())
    quick = Scalars(memory_efficiency_ratio=2.0)
    trials = [
        Trial(strategy=plan.strategy, step_seconds=(_step_seconds(plan, quick),) * 4)
        for plan in asked
    ]
    assert corrected(_gpu(), asked, trials).scalars.memory_efficiency_ratio <= 1.0
