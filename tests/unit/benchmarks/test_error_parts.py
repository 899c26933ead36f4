"""What errors are made of: numbers that are worked out by hand, and a file of one's own."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.error_parts import (
    Errors,
    by_one_factor,
    by_scales,
    main,
    table,
    trusted_peaks,
)
from planner.calibration.parts import COUNT, Parts
from planner.schema.job import LearntPeak, Precision, Stack
from planner.validation.report import compared
from tests.measured_rows import TORCHTITAN, a_run


def test_each_run_is_predicted_by_the_mean_of_all_others() -> None:
    assert by_one_factor(np.array([0.1, 0.2, 0.3])) == pytest.approx([-0.15, 0.0, 0.15])
    assert by_one_factor(np.array([0.3])) == pytest.approx([0.3])


def test_what_is_of_bias_is_the_square_of_the_mean() -> None:
    """0.1 and 0.3: 0.04 of 0.05."""
    found = Errors(shipped=np.array([0.1, 0.3]), after=np.zeros((1, 2)))
    assert found.bias_share == pytest.approx(0.8)
    assert Errors(shipped=np.zeros(2), after=np.zeros((1, 2))).bias_share == 0.0


def test_scales_of_others_leave_what_the_prior_holds_back() -> None:
    """Five runs of kernels alone, 1.2 times as long: four of them leave 25 / (25 + 4 x 400).

    1 / 0.2^2 is the precision of a scale, 1 / 0.05^2 that of a run.
    """
    seconds = np.zeros((5, COUNT))
    seconds[:, 0] = [1.0, 2.0, 3.0, 4.0, 5.0]
    parts = Parts(at=np.zeros(COUNT), rest=np.zeros(5), parts=seconds, measured=1.2 * seconds[:, 0])
    left = -math.log(1.2) * 25.0 / (25.0 + 4 * 400.0)
    assert by_scales(parts) == pytest.approx([left] * 5, rel=1e-6)


def test_scales_tell_apart_what_a_factor_cannot() -> None:
    """Kernels 1.3 times as long and memory 0.8 times, in other shares in each of six runs."""
    shares = np.linspace(0.1, 0.9, 6)
    seconds = np.zeros((6, COUNT))
    seconds[:, 0], seconds[:, 1] = shares, 1.0 - shares
    measured = 1.3 * seconds[:, 0] + 0.8 * seconds[:, 1]
    parts = Parts(at=np.zeros(COUNT), rest=np.zeros(6), parts=seconds, measured=measured)
    factor = by_one_factor(-np.log(measured))
    assert np.abs(by_scales(parts)).mean() < np.abs(factor).mean() / 5.0


def test_a_table_has_all_runs_dense_ones_and_each_source_alike() -> None:
    dense = np.array([True, False])
    sources = {
        "one": Errors(shipped=np.log([1.1, 1.3]), after=np.log([[1.0, 1.2]]), dense=dense),
        "two": Errors(shipped=np.log([0.9]), after=np.log([[0.8]]), dense=np.array([False])),
    }
    lines = list(table("step", ["after"], sources))
    assert lines[0] == "| step | runs | MAPE | bias | spread within | of bias | after |"
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:]]
    assert [own[0] for own in cells[2:]] == [
        "**all runs**", "dense bf16, from 3B", "**mean over sources**"
    ]  # fmt: skip
    assert [own[2] for own in cells] == ["20.0%", "10.0%", "16.7%", "10.0%", "15.0%"]
    assert [own[-1] for own in cells] == ["10.0%", "20.0%", "13.3%", "0.0%", "15.0%"]


def test_a_peak_far_from_all_others_is_less_trusted() -> None:
    peak = LearntPeak(
        device="a100-sxm4-80gb",
        stack=Stack.TORCH,
        precision=Precision.BF16,
        sequence_length=2048,
        parameter_count=8_000_000_000,
        log_error=0.05,
        shared_deviation=0.1,
        own_deviation=0.1,
    )
    found = trusted_peaks([*[peak] * 5, peak.model_copy(update={"log_error": 1.0})])
    assert [one.own_deviation for one in found[:5]] == pytest.approx([0.1] * 5)
    assert found[5].own_deviation > 0.3


def test_the_command_prints_both_tables(tmp_path, capsys) -> None:
    """Three runs that took twice what is predicted, on a file of one's own: all of it is bias."""
    step = next(iter(compared([a_run(TORCHTITAN)]))).step.predicted
    rates = {"tokens_per_s_per_gpu": None, "step_time_s": 2.0 * step, "family": "ours"}
    memory = {"peak_mem_gib": 40.0, "mem_class": "torch_reserved"}
    lines = [a_run(TORCHTITAN, **rates, **memory).model_dump_json() for _ in range(3)]
    (tmp_path / "own.jsonl").write_text("\n".join(lines))
    assert main([str(tmp_path / "own.jsonl")]) == 0
    printed = capsys.readouterr().out.splitlines()
    steps, peaks = (line for line in printed if line.startswith("| ours |"))
    assert [cell.strip() for cell in steps.split("|")[2:8]] == [
        "3", "50.0%", "-50.0%", "0.0%", "100%", "0.0%"
    ]  # fmt: skip
    assert [cell.strip() for cell in peaks.split("|")[5:8]] == ["0.0%", "100%", "0.0%"]
