"""The table of runs not seen before: each source alike, however many runs it has."""

from __future__ import annotations

from benchmarks.unseen import main, unseen_lines
from planner.validation.report import compared
from tests.measured_rows import TORCHTITAN, a_run

PREDICTED = next(iter(compared([a_run(TORCHTITAN)]))).step.predicted


def runs(count: int, ratio: float) -> list:
    """So many runs that took `ratio` times what is predicted of them."""
    rates = {"tokens_per_s_per_gpu": None, "step_time_s": ratio * PREDICTED}
    return list(compared([a_run(TORCHTITAN, **rates) for _ in range(count)]))


def cells(lines: list[str], name: str) -> list[str]:
    (line,) = [line for line in lines if line.startswith(f"| {name} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_sources_count_alike_in_the_mean_and_by_their_runs_in_all() -> None:
    """Three runs are predicted 50 % of what they took, one right: 37.5 and 25 % off."""
    lines = list(unseen_lines({"slow": runs(3, 2.0), "right": runs(1, 1.0)}))
    assert cells(lines, "slow")[1:6] == ["3", "3", "3", "50.0%", "-50.0%"]
    assert cells(lines, "**all runs**")[4] == "37.5%"
    assert cells(lines, "**mean over sources**")[4] == "25.0%"


def test_a_run_without_a_price_is_counted() -> None:
    lines = list(unseen_lines({"some": [*runs(1, 1.0), *compared([a_run(precision="int3")])]}))
    assert cells(lines, "some")[1:4] == ["2", "1", "1"]


def test_the_command_prints_the_table(tmp_path, capsys) -> None:
    (tmp_path / "one.jsonl").write_text(a_run(TORCHTITAN).model_dump_json() + "\n")
    assert main([str(tmp_path / "one.jsonl")]) == 0
    assert "| one | 1 | 1 | 1 |" in capsys.readouterr().out
