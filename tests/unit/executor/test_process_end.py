"""A rank whose end hangs is ended, and the launcher says where it was; the run is not lost."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the executor's tests need torch")

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from executor.errors import RankFailedError
from executor.outcome import RankOutcome, write_outcome
from executor.process_end import end_process, ended_badly
from executor.rank_processes import check_all_was_done
from planner.schema.run import RankReport


def _wait_for_ever() -> None:
    threading.Event().wait()


def _hung(directory: Path) -> int:
    """Return the exit status of a process with a thread that never ends."""
    process_id = os.fork()
    if process_id == 0:
        threading.Thread(target=_wait_for_ever).start()
        try:
            end_process(0, directory=directory, rank=3)
        except SystemExit:
            threading._shutdown()  # type: ignore[attr-defined]  # as the interpreter does
        finally:
            os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(process_id, 0)[1])


def test_an_end_that_hangs_is_ended_and_says_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MESHWRIGHT_END_SECONDS", "0.2")
    assert _hung(tmp_path) == 1
    said = ended_badly(tmp_path, 3, 1)
    assert said.startswith("rank 3 trained to its end, and its process did not end within 0 s")
    assert "test_process_end.py, line 23" in said


def _failed(directory: Path) -> ChildFailedError:
    failure = ProcessFailure(local_rank=0, pid=1, exitcode=-6, error_file=str(directory / "none"))
    return ChildFailedError("ranks", {0: failure})


def _outcome(**fields: object) -> RankOutcome:
    report = RankReport(
        rank=0,
        stage=0,
        mesh={},
        parameter_bytes=0,
        peak_memory_bytes=None,
        peak_memory_kind="live_tensors",
        step_seconds=(),
    )
    return RankOutcome.model_validate({"rank": 0, "report": report, **fields})


def test_a_rank_that_dies_after_its_report_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_outcome(tmp_path, _outcome())
    check_all_was_done(_failed(tmp_path), tmp_path)
    assert capsys.readouterr().err == (
        "warning: rank 0 trained to its end, and then ended with SIGABRT; what it had still to "
        "write is lost\n"
    )


def test_a_rank_that_dies_before_its_report_has_failed(tmp_path: Path) -> None:
    with pytest.raises(RankFailedError, match="rank 0 failed: was killed by SIGABRT"):
        check_all_was_done(_failed(tmp_path), tmp_path)
