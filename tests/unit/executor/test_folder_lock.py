"""One run saves into a folder; what a dead one left is taken over."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the executor's tests need torch")

from executor.errors import CheckpointError
from executor.folder_lock import LOCK_NAME, SILENT_SECONDS, LockOwner, hold, release_all


@pytest.fixture(autouse=True)
def _released() -> Iterator[None]:
    yield
    release_all()


def _hold_in_another_process(directory: Path) -> int:
    """Return a process that holds the lock, once it does."""
    read, write = os.pipe()
    process_id = os.fork()
    if process_id == 0:
        hold(directory)
        os.write(write, b"!")
        while True:
            signal.pause()
    os.read(read, 1)
    os.close(read)
    os.close(write)
    return process_id


def _end(process_id: int) -> None:
    os.kill(process_id, signal.SIGKILL)
    os.waitpid(process_id, 0)


def test_a_second_run_is_refused_until_the_first_is_dead(tmp_path: Path) -> None:
    first = _hold_in_another_process(tmp_path)
    with pytest.raises(CheckpointError) as refused:
        hold(tmp_path)
    _end(first)
    hold(tmp_path)
    assert f"(process {first} of {socket.gethostname()}, since " in str(refused.value)
    assert "give each run a directory of its own" in str(refused.value)
    assert LockOwner.model_validate_json((tmp_path / LOCK_NAME).read_bytes()).pid == os.getpid()


def test_a_run_that_holds_a_folder_may_save_again(tmp_path: Path) -> None:
    hold(tmp_path)
    hold(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [LOCK_NAME]


def test_a_folder_is_free_once_its_run_has_released_it(tmp_path: Path) -> None:
    hold(tmp_path)
    release_all()
    assert not list(tmp_path.iterdir())


def _lock_of_another_host(directory: Path, *, silent_seconds: float, run: str = "") -> None:
    owner = LockOwner(
        token="t", host="elsewhere", processes="", pid=1, start_ticks=1, run=run, since="then"
    )
    path = directory / LOCK_NAME
    path.write_text(owner.model_dump_json())
    touched = path.stat().st_mtime - silent_seconds
    os.utime(path, (touched, touched))


def test_another_host_holds_a_folder_as_long_as_it_touches_the_lock(tmp_path: Path) -> None:
    _lock_of_another_host(tmp_path, silent_seconds=SILENT_SECONDS - 60)
    with pytest.raises(CheckpointError, match="process 1 of elsewhere, since then"):
        hold(tmp_path)
    _lock_of_another_host(tmp_path, silent_seconds=SILENT_SECONDS + 60)
    hold(tmp_path)


def test_the_next_attempt_at_a_run_takes_over_from_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MESHWRIGHT_RUN", "run-7")
    _lock_of_another_host(tmp_path, silent_seconds=0, run="run-7")
    hold(tmp_path)


def test_a_run_whose_lock_was_taken_over_is_refused(tmp_path: Path) -> None:
    hold(tmp_path)
    (tmp_path / LOCK_NAME).unlink()
    _lock_of_another_host(tmp_path, silent_seconds=0)
    with pytest.raises(CheckpointError, match="process 1 of elsewhere"):
        hold(tmp_path)
