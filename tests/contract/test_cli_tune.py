"""`meshwright tune`, with real runs of two ranks on this machine."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from planner.importers.measured_runs import read_measured_runs
from planner.proof.verify import verify
from planner.schema.plan import Plan
from planner.schema.tuning import Tuning

ROOT = Path(__file__).parents[2]
TIMEOUT_SECONDS = 800  # of what hangs
# The command that the page shows: two steps of one run, and the best plan in a file.
SHOWN = next(
    shlex.split(line)[3:]
    for line in (ROOT / "docs/cli.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("$ meshwright tune ")
)
JOB = ("--global-batch-size", "8", "--sequence-length", "64", "--precision", "fp32")
ASKED = ("tiny-llama-cpu", "2xcpu-gloo", *JOB)
RAISES = """
from pathlib import Path
raise RuntimeError("a bug" if Path("tuning.json").exists() else "CUDA out of memory")
"""

pytestmark = [pytest.mark.distributed, pytest.mark.slow, pytest.mark.timeout(TIMEOUT_SECONDS)]


def command_line(*words: str) -> list[str]:
    return [sys.executable, "-m", "planner.cli", "tune", *words]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}


def tuned(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command_line(*words),
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )


def test_a_tuning_measures_certifies_and_goes_on_from_its_file(tmp_path):
    first = tuned(tmp_path, *ASKED, "--runs", "1", "--steps", "2", "--json")
    assert first.returncode == 0, first.stderr
    tuning = Tuning.read(tmp_path / "tuning.json")
    assert json.loads(first.stdout) == tuning.model_dump(mode="json")
    (trial,) = tuning.trials
    assert (trial.outcome, len(trial.step_seconds)) == ("measured", 2)
    assert "trial 1 of 1: " in first.stderr
    (run,) = read_measured_runs(tmp_path / "tuning.trials" / "runs.jsonl")
    assert run.steps_s == trial.step_seconds

    second = tuned(tmp_path, *SHOWN)
    assert second.returncode == 0, second.stderr
    assert Tuning.read(tmp_path / "tuning.json") == tuning
    assert "going on from tuning.json, which has 1 trial" in second.stdout
    assert "1 trial: 1 measured, 0 out of memory, 0 failed; the budget of 1 run is" in second.stdout
    assert "has more than a 10% chance of being" in second.stdout
    best = Plan.read(tmp_path / "best.json")
    verify(best)
    assert best.strategy == trial.strategy


def test_scripts_that_end_early_are_kept_with_their_logs(tmp_path):
    """The first trial runs out of memory, and once it is on file the script has a bug."""
    (tmp_path / "train.py").write_text(RAISES)
    done = tuned(tmp_path, *ASKED, "--runs", "2", "--", "train.py")
    assert done.returncode == 3
    trials = Tuning.read(tmp_path / "tuning.json").trials
    assert [trial.outcome for trial in trials] == ["out_of_memory", "failed"]
    for trial, message in zip(trials, ("CUDA out of memory", "a bug"), strict=True):
        assert message in trial.reason
        assert (tmp_path / trial.log).exists()
    assert "nothing was measured" in done.stdout


def test_a_template_tries_plans_as_jobs_of_another_framework(tmp_path):
    """The job prints its steps, and that the second plan is out of memory."""
    (tmp_path / "train.py").write_text(
        "import pathlib, sys\n"
        "assert 'for torchtitan' in pathlib.Path(sys.argv[1]).read_text()\n"
        "tried = pathlib.Path('tried')\n"
        "if tried.exists(): sys.exit('CUDA out of memory')\n"
        "tried.touch()\n"
        "for seconds in (9, 0.5, 0.25): print(f'step took {seconds} s')\n"
    )
    template = ("--template", f"{sys.executable} train.py {{config}}", "--framework", "torchtitan")
    pattern = ("--step-pattern", r"took (?P<seconds>[\d.]+) s", "--steps", "2")
    first = tuned(tmp_path, *ASKED, "--runs", "2", *template, *pattern)
    assert first.returncode == 0, first.stderr
    tuning = Tuning.read(tmp_path / "tuning.json")
    assert tuning.template == template[1]
    assert tuning.trials[0].step_seconds == (0.5, 0.25)
    assert [trial.outcome for trial in tuning.trials[1:]] in ([], ["out_of_memory"])
    other = tuned(tmp_path, *ASKED, "--runs", "2", *template, *pattern, "--template", "sh {config}")
    assert "--template: differs from the tuning in tuning.json, which has " in other.stderr


def test_an_interrupt_leaves_the_file_as_it_was_and_no_process(tmp_path):
    """The script says that it began, through a pipe, and waits for ever."""
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    script = f"open({str(begun)!r}, 'w').write('x')\nimport threading\nthreading.Event().wait()\n"
    (tmp_path / "train.py").write_text(script)
    # What a shell starts behind an & ignores interrupts, and so does all that it starts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        command_line(*ASKED, "--runs", "1", "--", "train.py"),
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    signal.signal(signal.SIGINT, before)
    reader = threading.Thread(target=begun.read_text, daemon=True)
    reader.start()
    reader.join(TIMEOUT_SECONDS / 2)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=TIMEOUT_SECONDS / 2)
    assert process.returncode == 130, said
    assert not (tmp_path / "tuning.json").exists()
    assert not list(tmp_path.glob("*.draft"))
    alive = subprocess.run(
        ["pgrep", "-f", str(tmp_path)],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )
    assert alive.stdout == ""
