"""Intervals: the spread of a step, and the chance that a peak fits."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from planner.cost.configuration import Configuration
from planner.cost.intervals import (
    EXPONENTS,
    LARGE_WIDTH,
    SHARED_DEVIATION,
    fits_probability,
    given_back_ratio,
    interval_causes,
    peak_at_the_limit,
    step_interval,
    step_width,
)
from planner.hardware import cluster_hardware
from planner.importers.clusters import cluster_from_short_form
from planner.importers.models import read_model
from planner.schema.job import Adapters, Precision, Stack
from planner.schema.plan import IntervalCause
from planner.workload.model import model_workload
from tests.builders import a_job


def test_an_interval_is_symmetric_in_ratio() -> None:
    interval = step_interval(10.0, width=math.log(1.25))
    assert (interval.p10, interval.p50, interval.p90) == pytest.approx((8.0, 10.0, 12.5))


BETWEEN = 1.2815515655446004 * SHARED_DEVIATION
ONE = Configuration(
    tensor_parallel_degree=1, data_parallel_shard_degree=8, micro_batch_size=1, micro_batch_count=1
)


def a_cause_each(
    model: str, device: str = "h100-sxm5-80gb", *, host: float = 0.0, **job: Any
) -> tuple[IntervalCause, ...]:
    """Return why a step on eight devices is uncertain."""
    workload = model_workload(read_model(model)[1])
    hardware = cluster_hardware(cluster_from_short_form(f"1x8x{device}"))
    fields = {"stack": Stack.TORCH, **job}
    return interval_causes(workload, hardware, a_job(**fields), ONE, host_ratio=host)


def a_width(model: str = "llama-3-70b", *, host: float = 0.0, **job: Any) -> float:
    """Return the half width of a step on eight devices."""
    return step_width(a_cause_each(model, host=host, **job))


def own_width(*arguments: Any, **job: Any) -> float:
    """Return what what a run has of its own: the width without what runs share."""
    return math.sqrt(a_width(*arguments, **job) ** 2 - BETWEEN**2)


@pytest.mark.parametrize("stack", [Stack.TORCH, Stack.MEGATRON])
def test_sources_differ_beside_runs_of_one_source(stack: Stack) -> None:
    assert a_width(stack=stack) == pytest.approx(math.hypot(LARGE_WIDTH, BETWEEN))


def test_causes_say_why_and_come_to_the_width() -> None:
    own, shared = a_cause_each("llama-3-70b")
    assert (own.cause, shared.cause) == (
        "runs that are alike differ",
        "teams with the same hardware and software differ",
    )
    assert math.log1p(own.ratio) == pytest.approx(LARGE_WIDTH)
    assert math.log1p(shared.ratio) == pytest.approx(BETWEEN)


def test_a_machine_whose_own_steps_were_seen_is_as_uncertain_as_they_were() -> None:
    """0.05 in all, of which 0.03 is each run's own and 0.04 is shared."""
    hardware = cluster_hardware(cluster_from_short_form("1x8xh100-sxm5-80gb"))
    (kind,) = hardware.kinds
    profile = kind.profile.model_copy(update={"step_error_ratio": 0.05})
    seen = replace(hardware, kinds=(replace(kind, profile=profile),))
    workload = model_workload(read_model("llama-3-70b")[1])
    own, shared = interval_causes(workload, seen, a_job(), ONE, host_ratio=0.0)
    assert math.log1p(own.ratio) == pytest.approx(1.281552 * 0.03, rel=1e-5)
    assert math.log1p(shared.ratio) == pytest.approx(1.281552 * 0.04, rel=1e-5)
    assert shared.cause == "errors of this machine's own steps"


@pytest.mark.parametrize(("precision", "place"), [(Precision.FP16, 4), (Precision.FP8, 5)])
def test_a_number_format_has_a_width_of_its_own(precision: Precision, place: int) -> None:
    assert own_width(precision=precision) == pytest.approx(LARGE_WIDTH * math.exp(EXPONENTS[place]))


def test_a_mixture_is_less_certain_than_a_dense_model_of_its_size() -> None:
    assert own_width("mixtral-8x7b") == pytest.approx(LARGE_WIDTH * math.exp(EXPONENTS[0]))


def test_adapters_make_a_step_less_certain() -> None:
    adapted = own_width(adapters=Adapters(rank=16))
    assert adapted == pytest.approx(LARGE_WIDTH * math.exp(EXPONENTS[3]))


def test_decades_below_ten_billion_parameters_make_a_step_less_certain() -> None:
    """1,557,611,200 parameters are 0.8075 decades below."""
    small = own_width("gpt2-xl") / LARGE_WIDTH
    assert math.log(small) == pytest.approx(0.8075 * EXPONENTS[1], rel=1e-3)


def test_waiting_for_the_host_widens_up_to_half_of_the_step() -> None:
    assert own_width(host=0.2) == pytest.approx(LARGE_WIDTH * math.exp(0.2 * EXPONENTS[2]))
    assert a_width(host=0.9) == a_width(host=0.5)


def test_a_peak_at_capacity_fits_in_half_of_all_runs() -> None:
    assert fits_probability(80.0, device_bytes=80.0, error_ratio=0.06) == pytest.approx(0.5)


def test_one_standard_deviation_below_capacity_fits_in_84_of_100() -> None:
    """exp(0.1) above the peak, with 0.1 as the logarithm's standard deviation."""
    chance = fits_probability(1.0, device_bytes=1.1051709, error_ratio=0.1)
    assert chance == pytest.approx(0.8413, abs=1e-4)


def test_nothing_always_fits() -> None:
    assert fits_probability(0.0, device_bytes=1.0, error_ratio=0.06) == 1.0


def test_a_device_without_memory_holds_nothing() -> None:
    assert fits_probability(1.0, device_bytes=0.0, error_ratio=0.06) == 0.0


def test_an_allocator_gives_back_what_it_need_not_hold() -> None:
    """Of 80 live and 2 of the runtime it holds 90 where there is room, and 83.44 at the limit."""
    peak = 80.0 * 1.1 + 2.0
    tight = peak_at_the_limit(peak, runtime_bytes=2.0, given_back_ratio=given_back_ratio(0.1))
    assert tight == pytest.approx(80.0 * 1.018 + 2.0)


def test_an_allocator_with_less_slack_has_no_more_at_the_limit() -> None:
    assert given_back_ratio(0.01) == 1.0
    assert peak_at_the_limit(82.8, runtime_bytes=2.0, given_back_ratio=1.0) == pytest.approx(82.8)
