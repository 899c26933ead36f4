"""Measured peaks asked of other sizes of memory: who ran out, who was missed, who was refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.smaller_devices import main, memory_sizes, table
from planner.units import GIB
from planner.validation.comparison import Pair
from tests.measured_rows import TORCHTITAN


def a_peak(predicted: float, measured: float) -> Pair:
    return Pair(predicted=predicted, measured=measured, p10=predicted, p90=predicted)


def cells(lines: list[str], name: str) -> list[str]:
    (line,) = [line for line in lines if line.startswith(f"| {name} |")]
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_a_run_that_needs_more_than_a_device_has_ran_out_there() -> None:
    """22 bytes on devices of 20, 24 and 40: predicted 19, one ran out and was missed."""
    lines = list(table([a_peak(19.0, 22.0)], [20.0, 24.0, 40.0]))
    assert cells(lines, "10% to 25%") == ["1", "100.0%", "0", ""]
    assert cells(lines, "5% to 10%") == ["0", "", "1", "0.0%"]
    assert cells(lines, "less than 100%") == ["1", "100.0%", "2", "0.0%"]
    assert cells(lines, "all") == ["1", "100.0%", "2", "0.0%"]


def test_a_run_that_would_fit_and_is_said_not_to_is_refused() -> None:
    lines = list(table([a_peak(21.0, 19.5), a_peak(10.0, 19.0)], [20.0, 40.0]))
    assert cells(lines, "0% to 5%") == ["0", "", "1", "100.0%"]
    assert cells(lines, "5% to 10%") == ["0", "", "1", "0.0%"]
    assert cells(lines, "100% and more") == ["0", "", "2", "0.0%"]
    assert cells(lines, "all") == ["0", "", "4", "25.0%"]


def test_sizes_are_those_of_shipped_gpus_each_once() -> None:
    sizes = memory_sizes()
    assert list(sizes) == sorted(set(sizes))
    assert 44.0 * GIB in sizes, "an L40S"
    assert sizes[0] > 14.0 * GIB


def test_peaks_of_test_suites_do_not_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = {**TORCHTITAN, "peak_mem_gib": 40.0, "mem_class": "torch_reserved"}
    rows = [run, {**run, "tier": "ci_small"}, {**run, "peak_mem_gib": None}]
    path = tmp_path / "runs.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    main([str(path)])
    assert capsys.readouterr().out.startswith("1 measured peaks on")
