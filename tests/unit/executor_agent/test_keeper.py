"""The keeper: real processes, ended when they must be, and started once."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from executor.agent.launching import KILLED, LocalLaunching
from executor.agent.processes import ProcessMark, is_alive, kill_all, mark_of, tagged
from executor.agent.run_folder import Command, RunFolder, machine_seconds
from tests.unit.executor_agent.leases import a_folder

pytestmark = pytest.mark.slow
LIMIT_SECONDS = 600.0
# A process, and one in a session of its own, as torch starts ranks. Both sleep on.
TWO_SLEEPERS = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(86_400)"], start_new_session=True)
print("started", flush=True)
time.sleep(86_400)
"""
# A process that takes a moment to end as it is asked to, and a script that leaves it behind.
UPLOAD = """
import signal, sys, time

def upload(*_):
    time.sleep(0.2)
    print("uploaded", flush=True)
    sys.exit()

signal.signal(signal.SIGTERM, upload)
print("ready", file=sys.stderr, flush=True)
time.sleep(86_400)
"""
LEAVES_AN_UPLOAD = f"""
import subprocess, sys
words = [sys.executable, "-c", {UPLOAD!r}]
subprocess.Popen(words, start_new_session=True, stderr=subprocess.PIPE).stderr.readline()
"""


@pytest.fixture
def tag(tmp_path: Path) -> Iterator[str]:
    """A tag of this test alone; what it marks ends with the test."""
    name = f"test-{os.getpid()}-{tmp_path.name}/"
    yield name
    kill_all(name)


def a_command(code: str, *, grace_seconds: float = 0.5) -> Command:
    return Command(
        argv=(sys.executable, "-c", code),
        directory="/",
        environment={},
        grace_seconds=grace_seconds,
    )


def started(
    folder: RunFolder, tag: str, code: str, *, grace_seconds: float = 0.5
) -> LocalLaunching:
    folder.write_until(machine_seconds() + 600)
    launching = LocalLaunching(folder, tag=tag)
    launching.start([a_command(code, grace_seconds=grace_seconds)])
    return launching


def wait_until(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def log_has(folder: RunFolder, text: str) -> bool:
    return folder.log_path.exists() and text in folder.log_path.read_text()


def test_a_command_that_ends_well_is_completed_and_its_output_kept(
    tmp_path: Path, tag: str
) -> None:
    folder = a_folder(tmp_path)
    launching = started(folder, tag, "import sys; print('out'); print('err', file=sys.stderr)")
    wait_until(launching.ending)
    ending = launching.ending()
    assert ending is not None
    assert (ending.reason, ending.exit_status) == ("completed", 0)
    assert sorted(folder.log_path.read_text().split()) == ["err", "out"]


def test_a_command_that_fails_says_with_which_status(tmp_path: Path, tag: str) -> None:
    folder = a_folder(tmp_path)
    launching = started(folder, tag, "raise SystemExit(7)")
    wait_until(launching.ending)
    ending = launching.ending()
    assert ending is not None
    assert (ending.reason, ending.exit_status) == ("failed", 7)


def test_what_a_command_leaves_behind_may_end_its_work(tmp_path: Path, tag: str) -> None:
    """As a tracker's process does, which uploads what a script has logged."""
    folder = a_folder(tmp_path)
    launching = started(folder, tag, LEAVES_AN_UPLOAD, grace_seconds=LIMIT_SECONDS)
    wait_until(launching.ending)
    ending = launching.ending()
    assert ending is not None
    assert (ending.reason, ending.exit_status) == ("completed", 0)
    assert folder.log_path.read_text() == "uploaded\n"
    assert tagged(tag) == []


def test_stopping_ends_processes_in_sessions_of_their_own_too(tmp_path: Path, tag: str) -> None:
    folder = a_folder(tmp_path)
    launching = started(folder, tag, TWO_SLEEPERS)
    wait_until(lambda: log_has(folder, "started"))
    assert len(tagged(tag)) == 3
    launching.stop()
    ending = launching.ending()
    assert ending is not None
    assert ending.reason == "stopped"
    assert tagged(tag) == []


def test_a_grace_ends_with_the_lease(tmp_path: Path, tag: str) -> None:
    """What saves after it was asked to end must not run on when others may have the run."""
    folder = a_folder(tmp_path)
    deaf = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{TWO_SLEEPERS}"
    launching = started(folder, tag, deaf, grace_seconds=2 * LIMIT_SECONDS)
    wait_until(lambda: log_has(folder, "started"))
    mark = folder.read_keeper()
    assert mark is not None
    os.kill(mark.pid, signal.SIGTERM)
    folder.write_until(machine_seconds() + 1.0)
    wait_until(lambda: not tagged(tag))
    wait_until(launching.ending)


def test_when_the_lease_runs_out_the_keeper_ends_all_without_an_agent(
    tmp_path: Path, tag: str
) -> None:
    folder = a_folder(tmp_path)
    launching = started(folder, tag, TWO_SLEEPERS)
    wait_until(lambda: log_has(folder, "started"))
    folder.write_until(machine_seconds())
    keeper = folder.read_keeper()
    assert keeper is not None
    wait_until(lambda: not is_alive(keeper))
    assert tagged(tag) == []
    ending = folder.read_ending()
    assert ending is not None
    assert ending.reason == "lease_lost"
    assert launching.ending() == ending


def test_a_keeper_that_was_killed_leaves_nothing_running_and_a_true_word(
    tmp_path: Path, tag: str
) -> None:
    folder = a_folder(tmp_path)
    launching = started(folder, tag, TWO_SLEEPERS)
    wait_until(lambda: log_has(folder, "started"))
    mark = folder.read_keeper()
    assert mark is not None
    os.kill(mark.pid, signal.SIGKILL)
    wait_until(launching.ending)
    ending = launching.ending()
    assert ending is not None
    assert (ending.reason, ending.message) == ("failed", KILLED)
    assert tagged(tag) == []


def test_another_agent_takes_up_what_runs_and_starts_nothing_twice(
    tmp_path: Path, tag: str
) -> None:
    folder = a_folder(tmp_path)
    first = started(folder, tag, TWO_SLEEPERS)
    wait_until(lambda: log_has(folder, "started"))
    successor = LocalLaunching(folder, tag=tag)
    assert successor.was_started()
    assert successor.ending() is None
    assert folder.claim() is None
    successor.stop()
    assert tagged(tag) == []
    assert first.ending() == successor.ending()
    assert folder.claim() is None


def test_a_command_that_cannot_be_started_fails_with_the_reason(tmp_path: Path, tag: str) -> None:
    folder = a_folder(tmp_path)
    folder.write_until(machine_seconds() + 600)
    launching = LocalLaunching(folder, tag=tag)
    launching.start(
        [Command(argv=("/no/such/file",), directory="/", environment={}, grace_seconds=0)]
    )
    wait_until(launching.ending)
    ending = launching.ending()
    assert ending is not None
    assert ending.reason == "failed"
    assert "/no/such/file" in ending.message


def test_a_number_used_again_is_not_taken_for_the_same_process() -> None:
    own = mark_of(os.getpid())
    assert own is not None
    assert is_alive(own)
    assert not is_alive(ProcessMark(pid=own.pid, start_ticks=own.start_ticks - 1))
