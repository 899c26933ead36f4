"""What a script has written is on disk though its process runs no Python any more."""

from __future__ import annotations

import os
import signal
from concurrent.futures import Future
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="no package torch")

from executor import background_save
from executor.background_save import BackgroundSaves, end_with_status
from executor.open_files import flush_open_files
from executor.termination import Termination


def _written_by(path: Path, end: object) -> int:
    """Return the status of a process that writes three lines, closes nothing and calls `end`."""
    process_id = os.fork()
    if process_id == 0:
        files = [path.open("w"), path.with_suffix(".bytes").open("wb")]
        files[0].write("step,loss\n")  # type: ignore[arg-type]
        files[1].write(b"\0\1")  # type: ignore[arg-type]
        end()  # type: ignore[operator]
        os._exit(0)
    return os.waitpid(process_id, 0)[1]


def test_files_that_nobody_closes_are_written(tmp_path: Path) -> None:
    assert _written_by(tmp_path / "log.csv", flush_open_files) == 0
    assert (tmp_path / "log.csv").read_text() == "step,loss\n"
    assert (tmp_path / "log.bytes").read_bytes() == b"\0\1"


def test_a_rank_that_is_killed_since_another_failed_has_written_its_files(tmp_path: Path) -> None:
    termination = Termination(
        grace_seconds=0.0, directory=tmp_path, rank=1, begun=lambda: 3, has_failed=lambda: True
    )
    status = _written_by(tmp_path / "log.csv", termination._die)
    assert os.WTERMSIG(status) == signal.SIGTERM
    assert (tmp_path / "log.csv").read_text() == "step,loss\n"
    assert (tmp_path / "rank-1.place").is_file()


def test_a_failed_save_that_nobody_asked_for_ends_the_process_badly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under another launcher the script's end is the process's: 0 would say that all went well."""
    statuses: list[int] = []
    monkeypatch.setattr(os, "_exit", statuses.append)
    monkeypatch.setattr(background_save, "_unheard", [])
    saves = BackgroundSaves()
    saves._hear()
    end_with_status()
    saves._running = Future()
    saves._running.set_exception(OSError("no room"))
    saves._hear()
    end_with_status()
    assert statuses == [1]
    assert capsys.readouterr().err == "error: the last save in the background failed: no room\n"
