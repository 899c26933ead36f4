"""A run's outputs are checked before it trains, not after."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the executor's tests need torch")

from executor.launcher import main
from tests.builders import a_plan


@pytest.mark.parametrize("option", ["--report", "--runs"])
def test_a_file_that_cannot_be_written_is_named_before_training(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(a_plan().to_json())
    place = tmp_path / "nowhere" / "file"
    assert main([str(plan), "--device", "cpu", option, str(place)]) == 1
    said = capsys.readouterr().err
    assert option in said
    assert str(place) in said
    assert "give a path in a folder that exists" in said
