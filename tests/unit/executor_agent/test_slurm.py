"""Slurm: a job is submitted, watched and cancelled by Slurm's programs, here by stand-ins."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from executor.agent.configuration import Slurm
from executor.agent.errors import AgentError
from executor.agent.processes import kill_all, tagged
from executor.agent.run_folder import Command, RunFolder, machine_seconds
from executor.agent.slurm import FIRST_HOST, SlurmLaunching
from executor.agent.slurm_rows import RowMerger
from planner.schema.agent import Intervals
from planner.schema.lease import Lease
from tests.unit.executor_agent.leases import a_folder, a_lease

pytestmark = pytest.mark.slow
LIMIT_SECONDS = 600.0
PROGRAMS = ("sbatch", "srun", "squeue", "sacct", "scancel", "scontrol")
FAKE = Path(__file__).with_name("fake_slurm.py")
# Says which node it is and where the first one is, then sleeps as long as it is told.
SAYS = "import sys, time; print(sys.argv[1:], flush=True); time.sleep(float(sys.argv[2]))"


@pytest.fixture
def tag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A tag for jobs, and the stand-ins on the PATH."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in PROGRAMS:
        path = programs / name
        path.write_text(f"#!{sys.executable}\n" + FAKE.read_text())
        path.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    name = f"test-slurm-{tmp_path.name}/"
    yield name
    kill_all(name)


def two_nodes(*, give_up_seconds: float = 600) -> Lease:
    intervals = Intervals(
        poll_seconds=1,
        heartbeat_seconds=0.5,
        flush_seconds=0.1,
        lease_seconds=1.5 * give_up_seconds,
        give_up_seconds=give_up_seconds,
    )
    return a_lease(node_count=2, node_span=2, ranks=(0, 1, 2, 3), intervals=intervals)


def a_command(seconds: float) -> Command:
    argv = (sys.executable, "-c", SAYS, FIRST_HOST, str(seconds))
    return Command(argv=argv, directory="/", environment={}, grace_seconds=0.5)


def submitted(
    folder: RunFolder, tag: str, *, seconds: float, give_up_seconds: float = 600
) -> SlurmLaunching:
    lease = two_nodes(give_up_seconds=give_up_seconds)
    launching = SlurmLaunching(folder, lease, Slurm(nodes=2, poll_seconds=0.1), tag=tag)
    folder.write_until(machine_seconds() + 600)
    launching.start([a_command(seconds), a_command(seconds)])
    return launching


def wait_until(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def test_a_job_runs_one_command_a_node_and_its_end_is_known_without_accounting(
    tmp_path: Path, tag: str
) -> None:
    folder = a_folder(tmp_path)
    launching = submitted(folder, tag, seconds=0)
    wait_until(launching.ending)
    ending = launching.ending()
    assert ending is not None
    assert (ending.reason, ending.exit_status) == ("completed", 0)
    assert folder.log_path.read_text().count("['127.0.0.1', '0']") == 2


def test_cancelling_leaves_no_process_of_the_job(tmp_path: Path, tag: str) -> None:
    folder = a_folder(tmp_path)
    launching = submitted(folder, tag, seconds=600)
    wait_until(lambda: folder.log_path.exists() and folder.log_path.read_text().count("600") == 2)
    assert launching.ending() is None
    launching.stop()
    ending = launching.ending()
    assert ending is not None
    assert ending.reason == "stopped"
    wait_until(lambda: not tagged(tag))


def test_an_agent_that_starts_again_finds_the_job_by_its_name(tmp_path: Path, tag: str) -> None:
    folder = a_folder(tmp_path)
    submitted(folder, tag, seconds=600)
    (folder.path / "job").unlink()
    slurm = Slurm(nodes=2, poll_seconds=0.1)
    successor = SlurmLaunching(folder, two_nodes(), slurm, tag=tag)
    assert successor.was_started()
    assert successor.ending() is None
    assert (folder.path / "job").read_text() == "1\n"
    successor.kill()
    wait_until(lambda: not tagged(tag))


def test_a_job_that_hears_nothing_for_too_long_ends_itself(tmp_path: Path, tag: str) -> None:
    """The agent is gone: nothing writes `until` any more."""
    folder = a_folder(tmp_path)
    launching = submitted(folder, tag, seconds=600, give_up_seconds=5)
    task = folder.path / "task.json"
    assert json.loads(task.read_text())["silence_seconds"] == 2.0
    wait_until(launching.ending)
    ending = launching.ending()
    assert ending is not None
    assert ending.reason == "failed"


def test_what_slurm_does_not_take_is_said_in_its_words(tmp_path: Path, tag: str) -> None:
    slurm = Slurm(nodes=2, options=("--partition=missing",))
    folder = a_folder(tmp_path)
    launching = SlurmLaunching(folder, two_nodes(), slurm, tag=tag)
    with pytest.raises(AgentError, match="invalid partition specified: missing"):
        launching.start([a_command(0), a_command(0)])
    assert not launching.was_started()


def test_rows_of_all_nodes_come_once_also_after_the_agent_was_killed(tmp_path: Path) -> None:
    def row(rank: int, step: int) -> str:
        return json.dumps({"rank": rank, "step": step, "step_seconds": 1}) + "\n"

    (tmp_path / "metrics-0.jsonl").write_text(row(0, 1) + "noise\n" + row(1, 1))
    (tmp_path / "metrics-1.jsonl").write_text(row(2, 1) + '{"rank": 3')
    RowMerger(tmp_path, two_nodes()).merge()
    with (tmp_path / "metrics-0.jsonl").open("a") as file:
        file.write(row(0, 2))
    RowMerger(tmp_path, two_nodes()).merge()
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    found = [(json.loads(line)["rank"], json.loads(line)["step"]) for line in lines]
    assert found == [(0, 1), (1, 1), (2, 1), (0, 2)]
