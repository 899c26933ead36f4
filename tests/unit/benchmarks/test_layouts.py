"""Tables of layouts: mixtures by what they are divided over, and pairs that are ranked rightly."""

from __future__ import annotations

from typing import Any

from benchmarks.layouts import mixture_lines, ranking_lines
from planner.validation.comparison import Comparison
from planner.validation.report import compared
from tests.measured_rows import MIXTURE, TORCHTITAN, a_run


def comparisons(base: dict[str, Any], *changes: dict[str, Any]) -> list[Comparison]:
    found = compared(a_run(base, tokens_per_s_per_gpu=None, **change) for change in changes)
    return [one for one in found if isinstance(one, Comparison)]


def cells(lines: list[str], name: str) -> list[str]:
    (line,) = [line for line in lines if line.startswith(f"| {name} |")]
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


NONE, FULL = {"recompute": "none"}, {"recompute": "full"}


def test_a_pair_is_ranked_rightly_where_the_faster_layout_is_predicted_faster() -> None:
    """Running all blocks again takes longer, whatever it was measured to."""
    right = comparisons(TORCHTITAN, {**NONE, "step_time_s": 10.0}, {**FULL, "step_time_s": 13.0})
    wrong = comparisons(TORCHTITAN, {**NONE, "step_time_s": 10.4}, {**FULL, "step_time_s": 10.0})
    assert cells(list(ranking_lines(right)), "all") == ["1", "100%", "1", "100%"]
    assert cells(list(ranking_lines(wrong)), "all") == ["1", "0%", "0", ""]


def test_runs_of_one_layout_are_one_and_other_jobs_are_no_pair() -> None:
    """Of 9 and 16 s the geometric mean is 12, faster than 13."""
    runs = comparisons(
        TORCHTITAN,
        {**NONE, "step_time_s": 9.0},
        {**NONE, "step_time_s": 16.0},
        {**FULL, "step_time_s": 13.0},
        {**FULL, "step_time_s": 1.0, "gbs": 128},
        {**FULL, "step_time_s": 1.0, "family": "another"},
    )
    assert cells(list(ranking_lines(runs)), "dense bf16, from 3B") == ["1", "100%", "1", "100%"]


def test_mixtures_are_counted_by_their_layout() -> None:
    """Two stages, and experts on 8 of 8 devices of a node, then on 16 of two."""
    runs = comparisons(
        MIXTURE,
        {**NONE, "step_time_s": 1e6},
        {**NONE, "step_time_s": 1e6, "moe_experts": 16, "ep": 16},
    )
    lines = list(mixture_lines([*runs, *comparisons(TORCHTITAN, {"step_time_s": 1.0})]))
    counts = {line.split("|")[1].strip(): line.split("|")[2].strip() for line in lines[2:]}
    assert counts == {
        "pipelines of 2 to 4": "2",
        "experts within a domain": "1",
        "experts over domains": "1",
        "nothing runs again": "2",
        "in 16 bits": "2",
    }
