"""Measured runs: lines become rows, and a bad line is named."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from planner.errors import DocumentError
from planner.importers.measured_runs import read_measured_runs, run_count
from planner.schema.document import DOCUMENT_BYTES_LIMIT
from planner.schema.measured_run import MeasuredRun
from tests.measured_rows import KORTHIKANTI, TORCHTITAN


def a_file(folder: Path, *lines: object) -> Path:
    """A file with one JSON object (or the text given) a line."""
    path = folder / "runs.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return path


def test_every_column_is_told_of() -> None:
    """`unreadable` is what the reader itself says of a line."""
    page = (Path(__file__).parents[2] / "docs" / "measured-runs.md").read_text(encoding="utf-8")
    untold = {name for name in MeasuredRun.model_fields if f"`{name}`" not in page}
    assert untold == {"unreadable"}


def test_every_line_is_a_run_and_empty_lines_are_passed_over(tmp_path: Path) -> None:
    path = a_file(tmp_path, TORCHTITAN, "", KORTHIKANTI)
    assert [run.id for run in read_measured_runs(path)] == ["torchtitan-8b", "korthikanti-175b"]
    assert run_count(path) == 2


def test_nothing_is_required() -> None:
    run = MeasuredRun.from_fields({"gpu": None}, source="a test")
    assert (run.gpu, run.seq_len, run.family_name) == (None, None, "unnamed")
    assert run.unreadable is None


def test_zeros_stand_for_nothing_of_a_kind_and_words_may_have_capitals() -> None:
    run = MeasuredRun.from_fields(
        {"moe_experts": 0, "ep": 0, "vpp": 0, "recompute": "Full", "outcome": "OOM"}, source="test"
    )
    assert run.unreadable is None
    assert (run.moe_experts, run.ep, run.vpp) == (None, None, None)
    assert (run.recompute, run.outcome) == ("full", "oom")


def test_more_prediction_layers_than_any_model_has_are_named() -> None:
    run = MeasuredRun.from_fields({"mtp_layers": 2**40}, source="a test")
    assert run.mtp_layers is None
    assert run.unreadable is not None
    assert "mtp_layers" in run.unreadable


def test_a_key_that_is_not_known_is_ignored() -> None:
    run = MeasuredRun.from_fields(
        {"gpu": "T4", "seq_len": 512, "chk_layout": "x1.5"}, source="a test"
    )
    assert not hasattr(run, "chk_layout")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_gpus": 0}, r"num_gpus: is too small .*got 0.*use 1 or more.* line 2"),
        ({"seq_len": "long"}, r"seq_len: is not a whole number .*got long.* line 2"),
        ({"step_time_s": -1.0}, r"step_time_s: is too small .*got -1.*use more than 0.* line 2"),
        ({"recompute": "some"}, r"recompute: .*got some.*'none'.* line 2"),
        ({"gpu": 4, "tier": []}, r"gpu: is not text .*1 more.*got 4.*write text.* line 2"),
    ],
)
def test_a_bad_field_is_named_with_its_line_and_others_are_read(
    tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    path = a_file(tmp_path, TORCHTITAN, {**TORCHTITAN, **fields})
    good, bad = read_measured_runs(path)
    assert (good.unreadable, bad.family) == (None, "torchtitan")
    assert bad.unreadable is not None
    assert re.search(message, bad.unreadable)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"gpu": ', r"line 2.*not valid JSON"),
        ("[1, 2]", r"line 2.*must be a mapping"),
        ('{"gpu": "T4", "seq_len": 512, "mfu": NaN}', r"line 2, mfu.*finite"),
    ],
)
def test_a_line_that_is_no_object_is_named(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(DocumentError, match=message):
        list(read_measured_runs(a_file(tmp_path, TORCHTITAN, line)))


def test_a_line_without_end_is_refused_before_it_is_read_whole(tmp_path: Path) -> None:
    path = a_file(tmp_path, " " * (DOCUMENT_BYTES_LIMIT + 10))
    with pytest.raises(DocumentError, match=r"line 1: is longer than"):
        list(read_measured_runs(path))


def test_a_file_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="holds no run"):
        list(read_measured_runs(a_file(tmp_path, "")))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="no such file"):
        list(read_measured_runs(tmp_path / "none.jsonl"))
