"""The launcher leaves word of what would be refused again, and of nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="no package torch")

from executor.errors import (
    CheckpointError,
    CheckpointFilesError,
    LaunchError,
    ModelMismatchError,
    RankFailedError,
    RefusedError,
    UnsupportedPlanError,
    WeightFilesError,
    WeightsError,
)
from executor.launcher import main
from executor.refusal import is_lasting
from planner.errors import DocumentError, MeshwrightError
from tests.builders import a_plan

SAID = {"field": "x", "remedy": "change it"}


@pytest.fixture(name="word")
def _word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the launcher is to leave word."""
    path = tmp_path / "refusal"
    monkeypatch.setenv("MESHWRIGHT_REFUSAL", str(path))
    return path


@pytest.mark.parametrize(
    ("error", "lasts"),
    [
        (UnsupportedPlanError("no", **SAID), True),
        (ModelMismatchError("no", **SAID), True),
        (DocumentError("no", **SAID), True),
        (LaunchError("is not a file", field="script", remedy="change it"), True),
        (LaunchError("the plan has GPUs", field="--device", remedy="wait"), False),
        (CheckpointError("another model's", **SAID), True),
        (CheckpointFilesError("disk full", **SAID), False),
        (WeightsError("another model's", **SAID), True),
        (WeightFilesError("cannot be read", **SAID), False),
        (RefusedError("no", is_lasting=True), True),
        (RefusedError("no"), False),
        (RankFailedError(1, "ValueError: no"), False),
    ],
)
def test_what_is_of_the_plan_model_or_script_lasts(error: MeshwrightError, lasts: bool) -> None:
    assert is_lasting(error) is lasts


def test_a_script_that_is_not_there_leaves_word(tmp_path: Path, word: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(a_plan().to_json())
    assert main([str(plan), "--", str(tmp_path / "train.py")]) == 1
    assert word.read_text().startswith("script: is not a file")


def test_a_command_line_that_is_none_leaves_word(word: Path) -> None:
    with pytest.raises(SystemExit):
        main(["plan.json", "--stepz", "5"])
    assert "command line" in word.read_text()


def test_help_is_no_refusal(word: Path) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert not word.exists()
