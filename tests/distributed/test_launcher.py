"""The launcher: ranks in real processes, a report, and one message when a rank fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from executor.step_profile import ProfileSummary
from planner.schema.plan import Plan
from planner.schema.run import RunReport
from tests.distributed.forking_launches import LIMIT_SECONDS, ForkingLaunches
from tests.distributed.group import ROOT
from tests.distributed.plans import cpu_plan

pytestmark = pytest.mark.distributed

Launched = tuple[subprocess.CompletedProcess[str], RunReport | None]
Launch = Callable[..., Launched]
WITHOUT_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")


@pytest.fixture(name="launch")
def _launch(launches: ForkingLaunches, tmp_path: Path) -> Launch:
    """Launch a plan with further arguments; return what was printed, and the report."""

    def launch(plan: Plan, *arguments: str) -> Launched:
        return _reported(launches.launch(tmp_path, *_words(tmp_path, plan), *arguments), tmp_path)

    return launch


def test_the_shipped_training_reports_falling_losses_and_every_rank(launch: Launch) -> None:
    """With --json the report alone stands on stdout, and what ranks print on stderr."""
    plan = cpu_plan(tensor_parallel_degree=1, pipeline_parallel_degree=2, micro_batch_size=4)
    result, report = launch(plan, "--steps", "6", "--json")
    assert result.returncode == 0, result.stderr
    assert report is not None
    assert RunReport.model_validate_json(result.stdout) == report
    assert report.status == "completed"
    assert report.world_size == 2
    assert len(report.losses) == 6
    assert report.losses[-1] < report.losses[0] - 0.3
    assert [rank.stage for rank in report.ranks] == [0, 1]
    assert all(rank.peak_memory_bytes for rank in report.ranks)
    assert all(rank.differences_from_plan == () for rank in report.ranks)
    assert report.median_step_seconds > 0
    assert report.predicted_step_seconds == plan.prediction.step_seconds.p50
    assert "step   6/6  loss" in result.stderr


def test_the_example_script_trains_under_a_plan(launch: Launch) -> None:
    plan = cpu_plan(data_parallel_degree=2, zero_stage=3, micro_batch_size=4)
    script = str(ROOT / "examples" / "train.py")
    result, report = launch(plan, "--", script)
    assert result.returncode == 0, result.stderr
    assert report is not None
    assert len(report.losses) == 10
    assert "step 10: loss" in result.stdout


def test_a_profile_says_what_steps_are_made_of(launch: Launch, tmp_path: Path) -> None:
    """The categories of each rank sum to its step, and an all-reduce is waited for."""
    plan = cpu_plan(data_parallel_degree=2, micro_batch_size=4)
    result, _ = launch(plan, "--steps", "5", "--profile", str(tmp_path / "profile"))
    assert result.returncode == 0, result.stderr
    for rank in range(2):
        assert (tmp_path / "profile" / f"rank-{rank}.json.gz").stat().st_size > 0
        path = tmp_path / "profile" / f"rank-{rank}.summary.json"
        summary = ProfileSummary.model_validate_json(path.read_bytes())
        assert (summary.first_step, summary.step_count) == (3, 3)
        own = (summary.compute_seconds, summary.optimizer_seconds, summary.host_seconds)
        assert all(seconds > 0 for seconds in own)
        assert summary.exposed_seconds["all_reduce"] > 0
        total = sum(own) + sum(summary.exposed_seconds.values())
        assert total == pytest.approx(summary.step_seconds)
    assert "steps 3 to 5, mean of 2 ranks:" in result.stdout
    assert "exposed collectives and bubble: measured" in result.stdout


def test_a_script_that_raises_gives_one_line_that_names_rank_and_error(
    launch: Launch, tmp_path: Path
) -> None:
    plan, script = cpu_plan(data_parallel_degree=2), _script(tmp_path, RAISES)
    result, report = launch(plan, "--", script)
    assert result.returncode == 1
    assert report is None
    assert result.stderr == (
        "error: rank 1 failed: ValueError: the shard is empty (script.py, line 5)\n"
    )


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        pytest.param(
            ("SEQUENCE = 16", "SEQUENCE = 20"),
            "loader: the plan has sequences of 16 tokens at most",
            id="sequence",
            marks=pytest.mark.parity_full,
        ),
        pytest.param(
            ("BATCH = 8", "BATCH = 6"),
            "loader: the plan has a global batch of 8 sequences",
            id="batch",
        ),
        pytest.param(
            ("HIDDEN = 32", "HIDDEN = 64"), "build_model hidden_size: the plan is for", id="width"
        ),
        pytest.param(
            ("FFN = 64", "FFN = 96"),
            "build_model ffn_size: the plan is for",
            id="ffn",
            marks=pytest.mark.parity_full,
        ),
        pytest.param(
            ("BLOCKS = 2", "BLOCKS = 3"),
            "build_model: the plan has 2 blocks",
            id="blocks",
            marks=pytest.mark.parity_full,
        ),
        pytest.param(
            ("CHECKPOINT = None", "CHECKPOINT = __file__ + '.d'"),
            "directory: holds no complete checkpoint",
            id="checkpoint",
        ),
    ],
)
def test_what_does_not_go_with_the_plan_is_one_line_and_every_rank_ends(
    launch: Launch, tmp_path: Path, changed: tuple[str, str], said: str
) -> None:
    """A pipeline, whose other stage would wait for ever."""
    plan = cpu_plan(pipeline_parallel_degree=2, micro_batch_size=2)
    (tmp_path / "script.py.d").mkdir()
    (tmp_path / "script.py.d" / ".metadata").write_bytes(b"broken")
    result, report = launch(plan, "--", _script(tmp_path, TRAINS.replace(*changed)))
    assert result.returncode == 1
    assert report is None
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert result.stderr.startswith(f"error: {said}")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("way", "said"),
    [
        ("break", "error: script: has ended on rank 1 after 1 steps"),
        ("sys.exit(0)", "error: script: has ended on rank 1 after 1 steps"),
        ("sys.exit(3)", "rank 1 failed: the script ended with exit status 3"),
        ("sys.exit('no data')", "rank 1 failed: no data"),
    ],
)
def test_a_script_that_ends_on_one_rank_alone_ends_all(
    launch: Launch, tmp_path: Path, way: str, said: str
) -> None:
    plan = cpu_plan(data_parallel_degree=2)
    result, _ = launch(plan, "--", _script(tmp_path, STOPS.replace("WAY", way)))
    assert result.returncode == 1
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_batches_that_differ_between_ranks_are_refused_before_the_first_step(
    launch: Launch, tmp_path: Path
) -> None:
    plan = cpu_plan(tensor_parallel_degree=2)
    result, report = launch(plan, "--", _script(tmp_path, DIFFER))
    assert result.returncode == 1
    assert report is None
    assert "trained" not in result.stdout
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: loader: must yield the same global batches on every rank")
    assert "(got another first batch on rank 1 than on rank 0); seed what shuffles" in line


def test_a_script_may_exit_at_its_end(launch: Launch, tmp_path: Path) -> None:
    plan = cpu_plan(data_parallel_degree=2)
    result, report = launch(plan, "--", _script(tmp_path, f"{TRAINS}\nraise SystemExit(0)\n"))
    assert result.returncode == 0, result.stderr
    assert report is not None
    assert report.losses


def test_a_script_that_is_no_file_is_told_before_ranks_start(launch: Launch) -> None:
    result, _ = launch(cpu_plan(), "--", "train_nowhere.py")
    assert result.returncode == 1
    assert result.stderr == (
        "error: script: is not a file (got train_nowhere.py); give the path of a Python script "
        "after --\n"
    )


def test_ranks_of_another_launcher_are_told_once_how_many_the_plan_has(tmp_path: Path) -> None:
    """Also where rank 0 is late: torchrun ends it as soon as another has ended."""
    plan_path = _written(tmp_path, cpu_plan(data_parallel_degree=4))
    words = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    script = f"import os, time\ntime.sleep(600 if os.environ['RANK'] == '0' else 0)\n{TRAINS}"
    result = subprocess.run(
        [sys.executable, "-m", *words, _script(tmp_path, script)],
        cwd=ROOT,
        env={**os.environ, "MESHWRIGHT_PLAN": str(plan_path), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert result.returncode != 0
    own = [line for line in result.stderr.splitlines() if line.startswith("error: WORLD_SIZE")]
    (line,) = own
    assert "the plan's degrees multiply to 4 ranks (got 2)" in line
    assert "launch 4 ranks, or plan for 2" in line


def test_a_killed_rank_is_named_with_its_signal(launch: Launch, tmp_path: Path) -> None:
    """As JSON, when that is asked for."""
    plan, script = cpu_plan(data_parallel_degree=2), _script(tmp_path, DIES)
    result, report = launch(plan, "--json", "--", script)
    assert result.returncode == 1
    assert report is None
    error = json.loads(result.stdout)["error"]
    assert error["kind"] == "RankFailedError"
    assert error["message"] == "rank 1 failed: was killed by SIGKILL"


def test_a_script_that_never_starts_the_executor_is_told_so(launch: Launch, tmp_path: Path) -> None:
    result, _ = launch(cpu_plan(), "--", _script(tmp_path, "print('hello')\n"))
    assert result.returncode == 1
    assert "ended without meshwright.start()" in result.stderr
    assert "Traceback" not in result.stderr


def test_ranks_die_with_the_launcher(tmp_path: Path) -> None:
    """The launcher is killed so that it can clean up nothing; the kernel ends its ranks."""
    plan_path = _written(tmp_path, cpu_plan(data_parallel_degree=2))
    command = [sys.executable, "-m", "executor.launcher", str(plan_path), "--"]
    launcher = subprocess.Popen(
        [*command, _script(tmp_path, WAITS)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert launcher.stdout is not None
    ranks = [int(launcher.stdout.readline()) for _ in range(2)]
    launcher.send_signal(signal.SIGKILL)
    launcher.wait()
    launcher.stdout.close()
    assert _ended(ranks)


@WITHOUT_GPU
def test_a_plan_for_gpus_is_refused_where_there_are_none(launch: Launch) -> None:
    plan = cpu_plan()
    cluster = plan.cluster.resolved
    group = cluster.node_groups[0].model_copy(update={"device": "h100-sxm5-80gb"})
    gpus = plan.cluster.model_copy(
        update={"resolved": cluster.model_copy(update={"node_groups": (group,)})}
    )
    result, _ = launch(plan.model_copy(update={"cluster": gpus}))
    assert result.returncode == 1
    assert result.stderr == (
        "error: device: the plan has 1 rank here on h100-sxm5-80gb (got 0 CUDA devices on this "
        "machine); plan for what this machine has (CPU ranks: cluster 1xcpu-gloo), force CPU ranks "
        "with --device cpu, or, where CUDA_VISIBLE_DEVICES is set, let a rank see its own device "
        "alone or all of its node's\n"
    )


@WITHOUT_GPU
def test_gpus_asked_for_where_there_are_none_are_refused_by_the_option(launch: Launch) -> None:
    result, _ = launch(cpu_plan(data_parallel_degree=2), "--device", "cuda")
    assert result.returncode == 1
    assert result.stderr == (
        "error: --device: the plan has 2 ranks here, which want a CUDA device each, and this "
        "machine has 0 (got cuda); leave it out: the plan is for cpu-gloo\n"
    )


TRAINS = """
import torch
import executor
from executor.losses import next_token_loss
from executor.models.decoder import Decoder
from planner.schema.model import DenseFeedForward

SEQUENCE = 16
BATCH = 8
HIDDEN = 32
FFN = 64
BLOCKS = 2
CHECKPOINT = None

session = executor.start()
planned = session.plan.model.resolved
run = planned.runs[0]
block = run.block.model_copy(update={"feed_forward": DenseFeedForward(ffn_size=FFN)})
run = run.model_copy(update={"block_count": BLOCKS, "block": block})
graph = planned.model_copy(update={"hidden_size": HIDDEN, "runs": (run,)})
trainer = session.parallelize(lambda: Decoder(graph), next_token_loss, torch.optim.AdamW)
if CHECKPOINT is not None:
    trainer.load(CHECKPOINT)
tokens = torch.zeros((BATCH, SEQUENCE), dtype=torch.long)
for inputs, targets in session.shard([(tokens, tokens)] * 2):
    trainer.step(inputs, targets)
"""

STOPS = """
import sys
import torch
import executor
from executor.losses import next_token_loss
from executor.models.decoder import Decoder

session = executor.start()
graph = session.plan.model.resolved
trainer = session.parallelize(lambda: Decoder(graph), next_token_loss, torch.optim.AdamW)
tokens = torch.zeros((8, 16), dtype=torch.long)
for inputs, targets in session.shard([(tokens, tokens)] * 3):
    if trainer.step_count == 1 and session.mesh.data_index == 1:
        WAY
    trainer.step(inputs, targets)
"""

DIFFER = """
import torch
import executor
from executor.losses import next_token_loss
from executor.models.decoder import Decoder

session = executor.start()
graph = session.plan.model.resolved
trainer = session.parallelize(lambda: Decoder(graph), next_token_loss, torch.optim.AdamW)
tokens = torch.zeros((8, 16), dtype=torch.long)
tokens[3, 5] = session.rank
for inputs, targets in session.shard([(tokens, tokens)]):
    trainer.step(inputs, targets)
    print("trained")
"""

RAISES = """
import meshwright
session = meshwright.start()
if session.mesh.data_index == 1:
    raise ValueError("the shard is empty")
import torch
torch.distributed.barrier()
"""

DIES = """
import os, signal
import meshwright
session = meshwright.start()
if session.mesh.data_index == 1:
    os.kill(os.getpid(), signal.SIGKILL)
import torch
torch.distributed.barrier()
"""

WAITS = """
import os, signal
print(os.getpid(), flush=True)
signal.pause()
"""


def _words(tmp_path: Path, plan: Plan) -> list[str]:
    return [str(_written(tmp_path, plan)), "--report", str(tmp_path / "report.json")]


def _reported(result: subprocess.CompletedProcess[str], tmp_path: Path) -> Launched:
    path = tmp_path / "report.json"
    return result, RunReport.read(path) if path.exists() else None


def _written(tmp_path: Path, plan: Plan) -> Path:
    path = tmp_path / "plan.json"
    path.write_text(plan.to_json())
    return path


def _script(tmp_path: Path, text: str) -> str:
    path = tmp_path / "script.py"
    path.write_text(text)
    return str(path)


def _ended(process_ids: list[int]) -> bool:
    """Return whether all processes end before the limit; the kernel needs a moment."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while any(_alive(process_id) for process_id in process_ids):
        if time.monotonic() > deadline:
            return False
        os.sched_yield()
    return True


def _alive(process_id: int) -> bool:
    """Return whether the process runs; one that waits to be reaped does not."""
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
