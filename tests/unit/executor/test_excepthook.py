"""What ranks of torchrun are refused with is said once, by whichever comes first."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="no package torch")

from torch.distributed import HashStore

from executor.ending import Ending
from executor.errors import LaunchError
from executor.excepthook import _hook

REFUSAL = LaunchError("is refused", field="plan", value="this", remedy="give another")


def _end_of(rank: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RANK", str(rank))
        _hook(None, LaunchError, REFUSAL, None)


def test_the_first_rank_of_a_node_speaks_whichever_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "attempt_0" / "1").mkdir(parents=True)
    place = tmp_path / "attempt_0" / "1" / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(place))
    for rank in (1, 0, 2):
        _end_of(rank)
    assert capsys.readouterr().err == f"error: {REFUSAL}\n"


@pytest.mark.parametrize("place", ["", "/no/such/folder/1/error.json"])
def test_where_ranks_share_no_folder_rank_0_speaks(
    place: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", place)
    _end_of(1)
    assert capsys.readouterr().err == ""
    _end_of(0)
    assert capsys.readouterr().err == f"error: {REFUSAL}\n"


def test_a_rank_that_waited_in_vain_says_who_was_behind(capsys: pytest.CaptureFixture[str]) -> None:
    store = HashStore()
    first, second = (Ending(store, rank=rank, world_size=2) for rank in range(2))
    for ending in (first, second, first):
        ending.step_begins()
    for error in (RuntimeError("Timed out waiting 8000ms"), RuntimeError("no such thing")):
        _hook(first, RuntimeError, error, None)
    said = "error: waited in vain: rank 1 had begun 1 of 2 steps\n"
    waited, other = "RuntimeError: Timed out waiting 8000ms\n", "RuntimeError: no such thing\n"
    assert capsys.readouterr().err == waited + said + other
