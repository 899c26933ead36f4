"""Measurements and comparisons: seconds and bytes as the row's own tools count them."""

from __future__ import annotations

from typing import Any

import pytest

from planner.units import GIB
from planner.validation.case import case_of
from planner.validation.comparison import Comparison, Fit, Pair, compare
from planner.validation.measurement import measured_fit, measured_peak_bytes, measured_seconds
from planner.validation.reasons import SetAside
from tests.measured_rows import KORTHIKANTI, TORCHTITAN, a_run


def seconds_of(base: dict[str, Any] = TORCHTITAN, /, **changes: Any) -> float | SetAside:
    """The measured step of a row with changes."""
    return measured_seconds(case_of(a_run(base, **changes)))


def the_comparison(base: dict[str, Any] = TORCHTITAN, /, **changes: Any) -> Comparison:
    """A row with changes, compared."""
    return compare(case_of(a_run(base, **changes)))


@pytest.mark.parametrize(
    "said", [{"varied_lengths": True}, {"flags": ("unpacked_data(variable length)",)}]
)
def test_a_rate_in_tokens_is_no_step_where_lengths_differ(said: dict[str, object]) -> None:
    """A stated step is one, and so are samples a second: their tokens are not needed."""
    rate = {"tokens_per_s_per_gpu": 2973.0, **said}
    derived = {"tokens_per_s_per_gpu": None, "calc_step_time_s": 3.9, "tflops_per_gpu": 160.0}
    assert measured_seconds(case_of(a_run(TORCHTITAN, **rate))) is SetAside.TOKENS_UNKNOWN
    assert measured_seconds(case_of(a_run(TORCHTITAN, **{**derived, **said}))) is (
        SetAside.TOKENS_UNKNOWN
    )
    assert measured_seconds(case_of(a_run(TORCHTITAN, **rate, step_time_s=3.0))) == 3.0
    samples = {"tokens_per_s_per_gpu": None, "samples_per_s": 32.0, **said}
    assert measured_seconds(case_of(a_run(TORCHTITAN, **samples))) == 2.0


def test_a_step_is_worked_out_from_tokens_a_second() -> None:
    """64 sequences of 8,192 tokens on 64 GPUs are 8,192 tokens each: 8192 / 2973 s."""
    assert seconds_of() == pytest.approx(2.7554658)


def test_a_stated_step_wins() -> None:
    assert seconds_of(step_time_s=2.5) == 2.5


def test_a_step_is_worked_out_from_samples_a_second() -> None:
    assert seconds_of(tokens_per_s_per_gpu=None, samples_per_s=32.0) == pytest.approx(2.0)


def test_a_step_is_worked_out_from_hardware_flop() -> None:
    """96 B s L h² (1 + s / 6h + V / 16 L h) FLOPs with 175B's sizes, at 142 TFLOP/s of 64 GPUs.

    Equation 3 of arXiv:2104.04473 counts the head's products four times; the loss is not
    recomputed, which is a quarter of 1 % here.
    """
    seconds = seconds_of(
        KORTHIKANTI, step_time_s=None, tflops_per_gpu=142.0, tflops_counts="hardware"
    )
    flop = 96 * 64 * 2048 * 96 * 12288**2 * (1 + 2048 / (6 * 12288) + 51200 / (16 * 96 * 12288))
    assert seconds == pytest.approx(flop / (142e12 * 64), rel=0.005)


def test_megatron_bridge_counts_what_the_mask_leaves_of_attention() -> None:
    """Of Llama-3-8B at 8,192 tokens 51.5 GFLOP a token, where others count 57.9."""
    stated = {"tflops_per_gpu": 515.0, "tflops_counts": "model", "tokens_per_s_per_gpu": None}
    tokens = 64 * 8192 / 64
    bridge = seconds_of(TORCHTITAN, framework="Megatron-Bridge 0.2", zero_stage=1, **stated)
    assert bridge == pytest.approx(tokens * 51.5e9 / 515e12, rel=0.005)
    assert seconds_of(TORCHTITAN, **stated) == pytest.approx(tokens * 57.9e9 / 515e12, rel=0.005)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"tokens_per_s_per_gpu": None}, SetAside.NOT_MEASURED),
        ({"outcome": "oom"}, SetAside.NOT_MEASURED),
        ({"tier": "ci_small"}, SetAside.LAUNCH_BOUND),
        ({"ready_time": False}, SetAside.DISTRUSTED),
    ],
)
def test_a_step_that_is_not_compared_says_why(changes: dict[str, Any], why: SetAside) -> None:
    assert seconds_of(**changes) is why


def test_a_peak_is_in_gibibytes() -> None:
    assert measured_peak_bytes(a_run(peak_mem_gib=50.0)) == 50.0 * GIB


def test_a_peak_that_the_row_distrusts_is_set_aside() -> None:
    run = a_run(peak_mem_gib=50.0, ready_memory=False)
    assert measured_peak_bytes(run) is SetAside.DISTRUSTED


def test_a_failed_run_says_nothing_of_memory() -> None:
    assert measured_fit(a_run(outcome="failed")) is SetAside.OUTCOME_OTHER


def predicted_peak(**changes: Any) -> float:
    """The predicted peak as a row with these measurements is compared."""
    pair = the_comparison(**{"peak_mem_gib": 50.0, **changes}).memory
    assert isinstance(pair, Pair)
    return pair.predicted


def test_a_reserved_peak_has_the_allocators_slack_and_a_devices_the_context() -> None:
    """The torch stack's slack is 10 % of live tensors, and its runtime 1.5 GiB."""
    live = predicted_peak(mem_class="torch_allocated")
    assert predicted_peak(mem_class="torch_reserved") == pytest.approx(1.1 * live)
    assert predicted_peak(mem_class="device_used") == pytest.approx(1.1 * live + 1.5 * GIB)
    assert predicted_peak(mem_class="unknown") == predicted_peak(mem_class="device_used")


def test_the_last_rank_is_the_last_stage() -> None:
    """The first of eight stages has eight micro-batches in flight, the last one."""
    pipeline = {**KORTHIKANTI, "peak_mem_gib": 40.0, "mem_class": "torch_allocated", "vpp": None}
    pipeline["pp_schedule"] = "1f1b"
    last = the_comparison(pipeline, mem_scope="last_global_rank (last PP stage)").memory
    anyone = the_comparison(pipeline).memory
    assert isinstance(last, Pair)
    assert isinstance(anyone, Pair)
    assert last.predicted < anyone.predicted


def test_a_run_out_of_memory_is_compared_by_its_fit_alone() -> None:
    comparison = the_comparison(outcome="oom", recompute="none", mbs=8, gbs=512)
    assert comparison.step is SetAside.NOT_MEASURED
    assert isinstance(comparison.fit, Fit)
    assert (comparison.fit.predicted, comparison.fit.fitted) == (False, False)


def test_a_measurement_in_the_interval_is_covered() -> None:
    pair = Pair(predicted=10.0, measured=11.0, p10=9.0, p90=11.5)
    assert pair.covered
    assert pair.error_ratio == pytest.approx(-1 / 11)
