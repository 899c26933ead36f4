"""Peaks as a calibration keeps them: measured ones, and what an outcome alone is worth."""

from __future__ import annotations

import math
from typing import Any

import pytest

from planner.calibration.peaks import learnt_peaks
from planner.calibration.report import Origin, calibration_report
from planner.calibration.row import sorted_rows
from planner.cost.peaks import own_peak_deviation
from planner.errors import InputError
from planner.schema.measured_run import MeasuredRun
from planner.validation.case import Case, case_of
from planner.validation.comparison import Pair, compare
from tests.measured_rows import TORCHTITAN, a_run

GIB = 2.0**30
ORIGIN = Origin(name="ours", date="2026-11-27", source="runs.jsonl", source_digest="0" * 64)
TOO_LARGE = {"peak_mem_gib": 800.0, "mem_class": "device_used"}
UNTIMED = {"tokens_per_s_per_gpu": None, "step_time_s": None}


def a_case(**changes: Any) -> Case:
    return case_of(a_run(TORCHTITAN, **{**UNTIMED, **changes}))


def predicted_gib(**changes: Any) -> float:
    """Return what the driver would count of the fullest stage."""
    return max(one.peak_memory_bytes for one in a_case(**changes).price().stages) / GIB


def measured(ratio: float, **changes: Any) -> dict[str, Any]:
    """Return a run without a step, whose peak is `ratio` of what is predicted."""
    peak = ratio * predicted_gib(**changes)
    return {**UNTIMED, "peak_mem_gib": peak, "mem_class": "device_used", **changes}


def test_a_measured_peak_is_kept_as_it_was_measured() -> None:
    (kept,) = learnt_peaks([(a_case(**measured(1.1)), True)])
    assert kept.log_error == pytest.approx(math.log(1.1), abs=1e-6)
    assert kept.own_deviation == pytest.approx(own_peak_deviation())
    assert (kept.device, kept.stack, kept.sequence_length) == ("a100-sxm4-80gb", "torch", 8192)


def test_a_peak_far_below_its_prediction_counts_as_one_deviation() -> None:
    (kept,) = learnt_peaks([(a_case(**measured(0.3)), True)])
    assert kept.log_error == pytest.approx(-0.117, abs=1e-3)


def test_a_run_out_of_memory_that_was_to_fit_says_that_peaks_are_larger() -> None:
    (kept,) = learnt_peaks([(a_case(), False)])
    assert kept.log_error > 0.0
    (twice, _) = learnt_peaks([(a_case(), False), (a_case(), False)])
    assert twice.log_error > kept.log_error


def test_a_run_that_was_sure_to_fit_says_nothing() -> None:
    assert learnt_peaks([(a_case(layers=2, gbs=64), True)]) == ()


def test_runs_without_a_step_teach_of_peaks_alone() -> None:
    runs = [a_run(TORCHTITAN, **measured(1.1)) for _ in range(3)]
    found = calibration_report(sorted_rows(runs), ORIGIN)
    assert found.accepted
    assert (len(found.profile.runs), len(found.profile.measured_peaks)) == (0, 3)
    (effect,) = found.profile.peak_effects
    assert effect.factor == pytest.approx(1.1 ** (3 / 4), rel=1e-6)
    assert effect.left_ratio < effect.prior_ratio


def test_validation_with_the_profile_is_closer_and_narrower() -> None:
    fields = measured(1.15)
    profile = calibration_report(sorted_rows([a_run(TORCHTITAN, **fields)] * 4), ORIGIN).profile
    shipped, ours = (
        compare(case_of(a_run(TORCHTITAN, **fields), calibration)).memory
        for calibration in (None, profile)
    )
    assert isinstance(shipped, Pair)
    assert isinstance(ours, Pair)
    assert shipped.error_ratio == pytest.approx(1.0 / 1.15 - 1.0, abs=1e-6)
    assert abs(ours.error_ratio) < 0.04
    assert ours.p90 / ours.p10 < shipped.p90 / shipped.p10


@pytest.mark.parametrize("mem_class", ["torch_allocated", "torch_reserved", "device_used"])
def test_each_way_to_count_a_peak_is_moved_alike(mem_class: str) -> None:
    profile = calibration_report(
        sorted_rows([a_run(TORCHTITAN, **measured(1.2))] * 2), ORIGIN
    ).profile
    run = a_run(TORCHTITAN, **{**UNTIMED, "peak_mem_gib": 40.0, "mem_class": mem_class})
    shipped, ours = (compare(case_of(run, calibration)).memory for calibration in (None, profile))
    assert isinstance(shipped, Pair)
    assert isinstance(ours, Pair)
    (effect,) = profile.peak_effects
    assert ours.predicted / shipped.predicted == pytest.approx(effect.factor, rel=1e-6)


def test_a_peak_far_from_all_others_is_less_trusted() -> None:
    """Five as predicted and one of 1.8 times it, as of another unit."""
    odd = (a_case(**measured(1.8)), True)
    known = learnt_peaks([(a_case(**measured(1.0)), True)] * 5 + [odd])
    assert known[-1].own_deviation > 2.0 * own_peak_deviation()
    assert [one.own_deviation for one in known[:5]] == pytest.approx([own_peak_deviation()] * 5)


def test_a_peak_of_more_than_its_device_holds_is_left_out_and_told() -> None:
    runs = [a_run(TORCHTITAN, **measured(1.0)), a_run(TORCHTITAN, **{**UNTIMED, **TOO_LARGE})]
    sorting = sorted_rows(runs)
    assert sorting.peaks_left_out == {"a peak of more than its device holds": 1}
    found = calibration_report(sorting, ORIGIN)
    assert len(found.profile.measured_peaks) == 1
    assert found.peaks_left_out == {"a peak of more than its device holds": 1}


def test_runs_that_say_nothing_are_refused_with_the_remedy() -> None:
    runs = [MeasuredRun.from_fields({**TORCHTITAN, **UNTIMED, "layers": 2}, source="test")]
    with pytest.raises(InputError, match="give runs with a measured step or peak"):
        calibration_report(sorted_rows(runs), ORIGIN)
