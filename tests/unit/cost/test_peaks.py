"""Peaks: how wide a chance of fitting is, and how runs of one's own narrow and move it, by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from planner.cost.intervals import P90_DEVIATIONS
from planner.cost.peaks import (
    PEAK_SHARED_RATIO,
    PEAK_WIDTH,
    UNLEARNT_PEAK_WIDTH,
    learnt_peaks,
    peak_deviation,
)
from planner.hardware import device_profile
from planner.importers.models import read_model
from planner.planning import estimate, resolved_cluster, resolved_model
from planner.schema.job import Calibration, Job, LearntPeak, LearntPeaks, Precision, Stack
from planner.schema.strategy import Strategy
from planner.workload.model import model_workload
from tests.builders import a_job

S = PEAK_WIDTH / P90_DEVIATIONS
U = UNLEARNT_PEAK_WIDTH / P90_DEVIATIONS
LLAMA_8B = model_workload(read_model("llama-3-8b")[1])


def a_peak(**changes: Any) -> LearntPeak:
    """Return a known peak of Llama-3-8B on an H100, as large as predicted unless told otherwise."""
    fields = {
        "device": "h100-sxm5-80gb",
        "stack": Stack.TORCH,
        "precision": Precision.BF16,
        "sequence_length": 4096,
        "parameter_count": LLAMA_8B.parameter_count,
        "log_error": 0.0,
        "shared_deviation": math.sqrt(PEAK_SHARED_RATIO) * S,
        "own_deviation": math.sqrt(1.0 - PEAK_SHARED_RATIO) * S,
    }
    return LearntPeak.model_validate({**fields, **changes})


def job_of(*peaks: LearntPeak, **fields: Any) -> Job:
    calibration = Calibration(name="ours", measured_peaks=peaks) if peaks else None
    return a_job(stack=Stack.TORCH, sequence_length=4096, calibration=calibration, **fields)


def deviation(model: str, device: str, stack: Stack = Stack.TORCH) -> float:
    workload = model_workload(read_model(model)[1])
    return peak_deviation(workload, device_profile(device), a_job(stack=stack))


@pytest.mark.parametrize(
    ("model", "device", "stack", "unlearnt"),
    [
        ("llama-3-8b", "h100-sxm5-80gb", Stack.TORCH, 0),
        ("llama-3-8b", "rtx-3090-24gb", Stack.TORCH, 1),
        ("llama-3-8b", "mi300x-192gb", Stack.MEGATRON, 1),
        ("qwen2-vl-7b", "h100-sxm5-80gb", Stack.TORCH, 1),
        ("qwen2-vl-7b", "rtx-3090-24gb", Stack.TORCH, 2),
    ],
)
def test_a_peak_is_the_less_certain_the_more_no_run_was_learnt_from(
    model: str, device: str, stack: Stack, unlearnt: int
) -> None:
    expected = math.sqrt(S**2 + unlearnt * U**2)
    assert deviation(model, device, stack) == pytest.approx(expected)


def learnt(*peaks: LearntPeak) -> LearntPeaks:
    found = learnt_peaks(LLAMA_8B, device_profile("h100-sxm5-80gb"), job_of(*peaks))
    assert found is not None
    return found


def test_one_peak_is_believed_by_what_runs_share_and_narrows_that() -> None:
    """Half of it is shared: of 0.2 0.1 is learnt, and t^2 / 2 + n^2 = 0.75 s^2 is left."""
    found = learnt(a_peak(log_error=0.2))
    assert found.log_ratio == pytest.approx(0.1)
    assert found.error_ratio == pytest.approx(math.sqrt(0.75) * S)
    assert found.trial_count == 1


def test_ten_peaks_leave_little_more_than_a_run_s_own() -> None:
    """t^2 / (t^2 + n^2 / 10) = 10 / 11 of them is learnt, and s^2 / 2 (1 + 1 / 11) is left."""
    found = learnt(*[a_peak(log_error=0.2)] * 10)
    assert found.log_ratio == pytest.approx(0.2 * 10 / 11)
    assert found.error_ratio == pytest.approx(math.sqrt(0.5 * 12 / 11) * S)


@pytest.mark.parametrize(
    "change",
    [
        {"device": "a100-sxm4-80gb"},
        {"stack": Stack.MEGATRON},
        {"precision": Precision.FP16},
        {"sequence_length": 4096 * 16},
        {"parameter_count": LLAMA_8B.parameter_count * 16},
    ],
)
def test_what_is_four_doublings_away_says_less(change: dict[str, Any]) -> None:
    """exp(-4 / 8) of what it shares with itself: 0.5 x 0.606531 x 0.2."""
    assert learnt(a_peak(log_error=0.2, **change)).log_ratio == pytest.approx(0.0606531)


def test_trials_of_a_tuning_come_before_runs_that_are_like_it() -> None:
    peaks = LearntPeaks(log_ratio=0.05, error_ratio=0.1, trial_count=2)
    calibration = Calibration(name="ours", peaks=peaks, measured_peaks=(a_peak(log_error=0.2),))
    job = a_job(stack=Stack.TORCH, calibration=calibration)
    assert learnt_peaks(LLAMA_8B, device_profile("h100-sxm5-80gb"), job) == peaks


def chance(*peaks: LearntPeak, micro_batch_size: int = 4) -> tuple[float, float]:
    """Return the chance of fitting and the peak of Llama-3-8B on eight H100."""
    job = job_of(*peaks, global_batch_size=64)
    strategy = Strategy.model_validate(
        {"data_parallel_shard_degree": 8, "zero_stage": 3, "micro_batch_size": micro_batch_size}
    )
    request = resolved_model("llama-3-8b"), resolved_cluster("8xh100-sxm5-80gb")
    found = estimate(*request, job, strategy).prediction
    return found.fits_probability, found.stages[0].peak_memory_bytes


def test_runs_that_took_a_tenth_more_raise_peaks_and_lower_the_chance() -> None:
    before, after = chance(), chance(*[a_peak(log_error=math.log(1.1))] * 10)
    assert after[1] / before[1] == pytest.approx(1.1 ** (10 / 11))
    assert after[0] < before[0]


def test_runs_that_took_what_was_predicted_make_the_chance_surer() -> None:
    """The peak stays; on either side of one half the chance goes away from it."""
    alike = [a_peak()] * 10
    for size in (2, 4):
        before, after = chance(micro_batch_size=size), chance(*alike, micro_batch_size=size)
        assert after[1] == pytest.approx(before[1])
        assert abs(after[0] - 0.5) > abs(before[0] - 0.5)
