"""One run saves into a folder; what a dead one left is taken over."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the executor's tests need torch")

from executor.errors import CheckpointError
from executor.folder_lock import (
    LOCK_NAME,
    SILENT_SECONDS,
    LockOwner,
    Watch,
    _own,
    hold,
    release_all,
)


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


ELSEWHERE = LockOwner(
    token="t", host="elsewhere", processes="", pid=1, start_ticks=1, run="", since="then"
)


def _write_lock(directory: Path, owner: LockOwner = ELSEWHERE) -> Path:
    path = directory / LOCK_NAME
    path.write_text(owner.model_dump_json())
    return path


class Elsewhere:
    """Time as it passes here, while another host touches its lock by a clock of its own."""

    def __init__(self, path: Path, touched: Callable[[float], float | None]) -> None:
        self.seconds = 0.0
        self._path = path
        self._touched = touched

    def pause(self, seconds: float) -> None:
        """Let time pass; the other host touches its lock where it says at what time it does."""
        self.seconds += seconds
        at = self._touched(self.seconds)
        if at is not None:
            os.utime(self._path, (at, at))

    @property
    def watch(self) -> Watch:
        """Return the watch of who looks on."""
        return Watch(clock=lambda: self.seconds, pause=self.pause)


def _each_ten_seconds(by: Callable[[float], float]) -> Callable[[float], float | None]:
    return lambda seconds: by(seconds) if seconds % 10 == 0 else None


@pytest.mark.parametrize(
    "clock",
    [
        lambda seconds: 1e9 + seconds,  # of another year
        lambda seconds: 4e9 - 3600 * seconds,  # set back again and again
    ],
)
def test_another_host_holds_a_folder_as_long_as_it_touches_the_lock_by_any_clock(
    tmp_path: Path, clock: Callable[[float], float]
) -> None:
    other = Elsewhere(_write_lock(tmp_path), _each_ten_seconds(clock))
    with pytest.raises(CheckpointError, match="process 1 of elsewhere, since then"):
        hold(tmp_path, watch=other.watch)
    assert other.seconds == 10


@pytest.mark.parametrize("touched", [0.0, 4e9])
def test_a_lock_that_nobody_touches_is_taken_over_however_new_or_old_it_seems(
    tmp_path: Path, touched: float, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _write_lock(tmp_path)
    os.utime(path, (touched, touched))
    other = Elsewhere(path, lambda _: None)
    hold(tmp_path, watch=other.watch)
    assert other.seconds == SILENT_SECONDS
    assert "waiting for up to 90 s to see whether another run (process 1 of" in (
        capsys.readouterr().err
    )
    assert LockOwner.model_validate_json(path.read_bytes()).pid == os.getpid()


def test_time_in_which_this_process_was_paused_counts_for_nothing(tmp_path: Path) -> None:
    """It looks on after five minutes in which the other was paused as well."""
    path = _write_lock(tmp_path)
    other = Elsewhere(path, lambda seconds: 1.0 if seconds > 310 else None)

    def pause(seconds: float) -> None:
        other.pause(300.0 if other.seconds == 5 else seconds)

    with pytest.raises(CheckpointError, match="process 1 of elsewhere"):
        hold(tmp_path, watch=Watch(clock=lambda: other.seconds, pause=pause))


def test_a_lock_that_is_released_while_it_is_watched_is_taken(tmp_path: Path) -> None:
    path = _write_lock(tmp_path)
    hold(tmp_path, watch=Watch(clock=lambda: 0.0, pause=lambda _: path.unlink()))
    assert LockOwner.model_validate_json(path.read_bytes()).pid == os.getpid()


def test_a_lock_that_a_third_takes_over_first_is_the_third_s(tmp_path: Path) -> None:
    _write_lock(tmp_path)
    third = ELSEWHERE.model_copy(update={"host": "third"})

    def pause(_: float) -> None:
        _write_lock(tmp_path, third)

    with pytest.raises(CheckpointError, match="process 1 of third"):
        hold(tmp_path, watch=Watch(clock=lambda: 0.0, pause=pause))


def test_a_process_of_another_machine_with_this_one_s_name_is_not_looked_for_here(
    tmp_path: Path,
) -> None:
    """Its number is of nobody here, which says nothing of whether it lives there."""
    other = _own().model_copy(update={"processes": "another start", "pid": 2**22 + 1})
    there = Elsewhere(_write_lock(tmp_path, other), _each_ten_seconds(lambda at: at))
    with pytest.raises(CheckpointError, match=f"process {2**22 + 1} of {socket.gethostname()}"):
        hold(tmp_path, watch=there.watch)


def test_the_next_attempt_at_a_run_takes_over_from_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MESHWRIGHT_RUN", "run-7")
    _write_lock(tmp_path, ELSEWHERE.model_copy(update={"run": "run-7"}))
    hold(tmp_path)


def test_a_run_whose_lock_was_taken_over_is_refused(tmp_path: Path) -> None:
    hold(tmp_path)
    path = _write_lock(tmp_path)
    there = Elsewhere(path, _each_ten_seconds(lambda at: at))
    with pytest.raises(CheckpointError, match="process 1 of elsewhere"):
        hold(tmp_path, watch=there.watch)
