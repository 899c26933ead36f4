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

    def run(
        script,
        *,
        framework=Framework.TORCHTITAN,
        pattern=STEP,
        peak_pattern=None,
        step_count=2,
        seconds_most=600.0,
        pipeline=1,
    ):
        (tmp_path / "train.py").write_text(script, encoding="utf-8")
        command = f"{sys.executable} {tmp_path}/train.py {{config}} {{folder}} {{steps}}"
        template = read_template(
            command, framework=framework, step_pattern=pattern, peak_pattern=peak_pattern
        )
        strategy = a_strategy(
            tensor_parallel_degree=1,
            pipeline_parallel_degree=pipeline,
            data_parallel_shard_degree=8 // pipeline,
        )
        plan, log = a_plan(strategy=strategy), tmp_path / "trial.log"
        folder = tmp_path / "trial"
        outcome = outcome_of(
            plan,
            template,
            folder=folder,
            log=log,
            step_count=step_count,
            seconds_most=seconds_most,
        )
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


STEPS = "for _ in range(3): print('step took 1 s')\n"
MEMORY_LINES = [
    f"[Rank {rank}] (after 1 iterations) memory (MB) | allocated: 99.5 | max allocated: {peak} | "
    "reserved: 8192.0 | max reserved: 8192.0"
    for rank, peak in ((0, 2048.0), (4, 1024.0))
]
PEAKS = {  # what frameworks print beside or between their steps
    Framework.MEGATRON_LM: ("\n".join(MEMORY_LINES), 2.0 * 2**30, "tensors"),
    Framework.TORCHTITAN: (TITAN_LINE, 1.2 * 2**30, "reserved"),
    Framework.DEEPSPEED: (DEEPSPEED_LINE, 1.2 * 2**30, "tensors"),
}


@pytest.mark.parametrize("framework", PEAKS)
def test_the_highest_peak_that_a_framework_prints_is_read(job, framework):
    printed, peak_bytes, kind = PEAKS[framework]
    outcome, _ = job(f"print({printed!r})\n{STEPS}", framework=framework)

    assert outcome["peak_memory_bytes"] == pytest.approx(peak_bytes)
    assert outcome["peak_memory_kind"] == kind


def test_one_rank_of_a_pipeline_does_not_say_what_the_fullest_takes(job):
    """Megatron-LM prints a rank of each stage; torchtitan one, unless a pattern is said to."""
    own = r"memory: (?P<reserved_gib>[\d.]+)GiB"
    script = f"print({TITAN_LINE!r})\n{STEPS}"
    assert "peak_memory_bytes" not in job(script, pipeline=2)[0]
    assert job(script, pipeline=2, peak_pattern=own)[0]["peak_memory_kind"] == "reserved"
    lines = "\n".join(MEMORY_LINES)
    megatron, _ = job(f"print({lines!r})\n{STEPS}", framework=Framework.MEGATRON_LM, pipeline=2)
    assert megatron["peak_memory_bytes"] == 2.0 * 2**30


def test_a_pattern_reads_peaks_of_any_job_in_its_unit(job):
    outcome, _ = job(
        f"print('peak 3 MiB')\n{STEPS}", peak_pattern=r"peak (?P<allocated_mib>\d+) MiB"
    )

    assert (outcome["peak_memory_bytes"], outcome["peak_memory_kind"]) == (3.0 * 2**20, "tensors")


def test_a_job_that_hangs_is_ended_and_has_failed(job):
    outcome, _ = job("import threading; threading.Event().wait()\n", seconds_most=0.0)

    assert outcome["outcome"] == "failed"
    assert outcome["reason"] == "ended after 0 minutes, which --trial-minutes allows it"


def test_what_a_job_leaves_behind_is_not_waited_for(job):
    """A child that never ends holds the output open after the job has."""
    outcome, _ = job(
        "import subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-c', 'import threading; threading.Event().wait()'])\n"
        "for seconds in (9, 2.5): print(f'step took {seconds} s')\n"
    )

    assert outcome == {"outcome": "measured", "step_seconds": (2.5,)}
