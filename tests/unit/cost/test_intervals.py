"""Intervals: the spread of a step, and the chance that a peak fits."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from planner.cost.configuration import Configuration
from planner.cost.intervals import (
    ADAPTED_WIDTH,
    SHARED_RATIO,
    UNLEARNT_WIDTH,
    WIDTH,
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
from planner.schema.job import Adapters, Stack
from planner.schema.plan import IntervalCause
from planner.workload.model import model_workload
from tests.builders import a_job


def test_an_interval_is_symmetric_in_ratio() -> None:
    interval = step_interval(10.0, width=math.log(1.25))
    assert (interval.p10, interval.p50, interval.p90) == pytest.approx((8.0, 10.0, 12.5))


ONE = Configuration(
    tensor_parallel_degree=1, data_parallel_shard_degree=8, micro_batch_size=1, micro_batch_count=1
)
OWN = math.sqrt(1.0 - SHARED_RATIO)
BETWEEN = math.sqrt(SHARED_RATIO)


def causes_of(
    model: str = "llama-3-70b", device: str = "h100-sxm5-80gb", **job: Any
) -> tuple[IntervalCause, ...]:
    """Return why a step on eight devices is uncertain."""
    workload = model_workload(read_model(model)[1])
    hardware = cluster_hardware(cluster_from_short_form(f"1x8x{device}"))
    fields = {"stack": Stack.TORCH, **job}
    return interval_causes(workload, hardware, a_job(**fields), ONE)


def ratios(causes: tuple[IntervalCause, ...]) -> dict[str, float]:
    """Return how wide each cause alone would make a step, in logarithms."""
    return {cause.cause: math.log1p(cause.ratio) for cause in causes}


@pytest.mark.parametrize("stack", [Stack.TORCH, Stack.MEGATRON])
@pytest.mark.parametrize("model", ["llama-3-70b", "mixtral-8x7b", "gpt2-xl"])
def test_causes_say_why_and_come_to_the_width(model: str, stack: Stack) -> None:
    causes = causes_of(model, stack=stack)
    assert step_width(causes) == pytest.approx(WIDTH)
    assert ratios(causes) == {
        "runs that are alike differ": pytest.approx(OWN * WIDTH),
        "teams with the same hardware and software differ": pytest.approx(BETWEEN * WIDTH),
    }


def test_adapters_make_a_step_less_certain() -> None:
    adapted = causes_of(adapters=Adapters(rank=16))
    assert step_width(adapted) == pytest.approx(ADAPTED_WIDTH)
    assert ADAPTED_WIDTH > WIDTH


@pytest.mark.parametrize(
    ("model", "device", "stack", "cause"),
    [
        ("llama-3-8b", "rtx-3090-24gb", "torch", "torch on rtx-3090-24gb or on its chip"),
        ("llama-3-8b", "mi300x-192gb", "megatron", "megatron on mi300x-192gb or on its chip"),
        ("qwen2-vl-7b", "h100-sxm5-80gb", "torch", "a model with towers"),
        ("nemotron-h-56b", "h100-sxm5-80gb", "torch", "a model with state spaces"),
    ],
)
def test_what_no_run_was_learnt_from_is_wide_and_says_so(
    model: str, device: str, stack: str, cause: str
) -> None:
    causes = causes_of(model, device, stack=Stack(stack))
    assert step_width(causes) == pytest.approx(math.hypot(WIDTH, UNLEARNT_WIDTH))
    assert ratios(causes)[f"no run of {cause} was ever learnt from"] == pytest.approx(
        UNLEARNT_WIDTH
    )


def test_each_thing_that_no_run_was_learnt_from_adds_to_the_width() -> None:
    causes = causes_of("qwen2-vl-7b", "rtx-3090-24gb")
    assert step_width(causes) == pytest.approx(math.sqrt(WIDTH**2 + 2.0 * UNLEARNT_WIDTH**2))


def test_the_kind_of_device_of_which_least_is_known_says_how_wide() -> None:
    workload = model_workload(read_model("llama-3-8b")[1])
    known, other = (
        cluster_hardware(cluster_from_short_form(f"1x8x{device}"))
        for device in ("h100-sxm5-80gb", "rtx-3090-24gb")
    )
    both = replace(known, kinds=(*known.kinds, *other.kinds))
    found = interval_causes(workload, both, a_job(stack=Stack.TORCH), ONE)
    assert found == causes_of("llama-3-8b", "rtx-3090-24gb")


def test_a_machine_whose_own_steps_were_seen_is_as_uncertain_as_they_were() -> None:
    """0.05 in all, of which 0.03 is each run's own and 0.04 is shared."""
    hardware = cluster_hardware(cluster_from_short_form("1x8xrtx-3090-24gb"))
    (kind,) = hardware.kinds
    profile = kind.profile.model_copy(update={"step_error_ratio": 0.05})
    seen = replace(hardware, kinds=(replace(kind, profile=profile),))
    workload = model_workload(read_model("llama-3-70b")[1])
    own, shared = interval_causes(workload, seen, a_job(), ONE)
    assert math.log1p(own.ratio) == pytest.approx(1.281552 * 0.03, rel=1e-5)
    assert math.log1p(shared.ratio) == pytest.approx(1.281552 * 0.04, rel=1e-5)
    assert shared.cause == "errors of this machine's own steps"


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
