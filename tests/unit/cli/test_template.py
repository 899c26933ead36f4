"""Trials as other frameworks' jobs: what they are given, and how their steps are read."""

from __future__ import annotations

import sys

import pytest

from planner.cli.template import outcome_of, read_template
from planner.schema.job import Framework
from tests.builders import a_plan, a_strategy

STEP = r"step took (?P<seconds>[\d.]+) s"
MEGATRON_LINE = (
    " [2026-01-01 00:00:00] iteration        2/      10 | consumed samples:           32 | "
    "elapsed time per iteration (ms): 250.5 | learning rate: 1.5E-04 |"
)
TITAN_LINE = (
    "[titan] - root - INFO - step:  2  loss:  8.12  grad_norm: 1.2  memory: 1.2GiB(1.5%)  "
    "tps: 1,024  tflops: 1.1  mfu: 0.5%"
)
DEEPSPEED_LINE = (
    "[Rank 0] epoch=0/micro_step=2/global_step=2, RunningAvgSamplesPerSec=63.0, "
    "CurrSamplesPerSec=64.0, MemAllocated=1.0GB, MaxMemAllocated=1.2GB"
)
PRINTED = {  # lines as frameworks print them, and the step of 16 x 128 tokens on 8 devices
    Framework.MEGATRON_LM: (MEGATRON_LINE, 0.2505),
    Framework.TORCHTITAN: (TITAN_LINE, 0.25),
    Framework.DEEPSPEED: (DEEPSPEED_LINE, 0.25),
}


@pytest.fixture
def job(tmp_path, monkeypatch):
    """Run a Python script as a job of a framework; return the outcome and what it printed."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)

    def run(script, *, framework=Framework.TORCHTITAN, pattern=STEP, step_count=2):
        (tmp_path / "train.py").write_text(script, encoding="utf-8")
        command = f"{sys.executable} {tmp_path}/train.py {{config}} {{folder}} {{steps}}"
        template = read_template(command, framework=framework, step_pattern=pattern)
        strategy = a_strategy(
            tensor_parallel_degree=1, pipeline_parallel_degree=1, data_parallel_shard_degree=8
        )
        plan, log = a_plan(strategy=strategy), tmp_path / "trial.log"
        folder = tmp_path / "trial"
        outcome = outcome_of(plan, template, folder=folder, log=log, step_count=step_count)
        return outcome, log.read_text(encoding="utf-8")

    return run


def test_a_job_gets_the_exported_file_its_folder_and_how_many_steps(job, tmp_path):
    outcome, printed = job(
        "import sys, pathlib\n"
        "config, folder, steps = sys.argv[1:]\n"
        "print(pathlib.Path(config).read_text().splitlines()[0], folder, steps)\n"
        "for seconds in (9, 2.5, 2.25): print(f'step took {seconds} s')\n"
    )

    assert outcome == {"outcome": "measured", "step_seconds": (2.5, 2.25)}
    first, *_ = printed.splitlines()
    assert first.endswith(f"--config plan. {tmp_path}/trial 3")
    assert "for torchtitan" in first


def test_a_job_is_ended_once_it_has_printed_enough(job):
    """It would go on for ever."""
    outcome, _ = job(
        "import itertools\n"
        "for step in itertools.count(1): print(f'step took {step} s', flush=True)\n"
    )

    assert outcome["step_seconds"] == (2.0, 3.0)


@pytest.mark.parametrize("framework", PRINTED)
def test_lines_of_frameworks_are_known(job, framework):
    line, seconds = PRINTED[framework]
    outcome, _ = job(f"for _ in range(3): print({line!r})\n", framework=framework, pattern=None)

    assert outcome["step_seconds"] == pytest.approx((seconds, seconds))


def test_memory_that_runs_out_is_known_by_what_was_printed(job):
    outcome, printed = job(
        "import sys\n"
        "print('step took 1 s')\n"
        "print('torch.OutOfMemoryError: CUDA out of memory.', file=sys.stderr)\n"
        "print('E1126 failed (exitcode: 1)', file=sys.stderr)\n"
        "sys.exit(1)\n"
    )

    assert outcome == {"outcome": "out_of_memory", "reason": "E1126 failed (exitcode: 1)"}
    assert "CUDA out of memory" in printed


def test_another_end_is_a_failure_with_the_last_line(job):
    outcome, _ = job("raise KeyError('labels')\n")

    assert outcome == {"outcome": "failed", "reason": "KeyError: 'labels'"}


def test_a_job_without_a_word_says_how_it_ended(job):
    outcome, _ = job("import sys; sys.exit(7)\n")

    assert outcome["reason"] == "ended with exit status 7 and no message"


def test_a_job_that_prints_no_timed_step_has_failed(job):
    outcome, _ = job("print('step took 1 s')\n")

    assert outcome["outcome"] == "failed"
    assert outcome["reason"] == "fewer than 2 lines matched --step-pattern"
