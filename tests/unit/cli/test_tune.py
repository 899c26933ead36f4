"""`meshwright tune` before and after its runs: what it refuses, and how it reads their ends."""

from __future__ import annotations

import fcntl
import inspect
import json
import os
from pathlib import Path

import pytest

from planner.cli.trial import _failure, _measured
from planner.cli.tune import tune
from planner.cli.views.tuning import end_lines, trial_line
from planner.errors import InputError
from planner.requests.resolution import resolved_cluster, resolved_model, resolved_request
from planner.schema.job import Job
from planner.schema.plan import Interval
from planner.schema.tuning import MeasuredCertificate, PeakKind, Tuning, TuningBudget, TuningTrial
from planner.tuning.continuation import continued
from planner.tuning.words import claim
from tests.builders import a_plan, a_strategy

CPU = ("tiny-llama-cpu", "2xcpu-gloo", "--global-batch-size", "8", "--sequence-length", "64")


TITAN = ("--framework", "torchtitan")


def a_certificate(**changes):
    fields = {
        "ended_by": "runs",
        "best_trial": 1,
        "step_seconds": 0.5,
        "run_count": 3,
        "out_of_memory_count": 1,
        "failed_count": 1,
        "configurations_total": 41_514,
        "lower_bound_seconds": 0.51,
        "optimistic_seconds": 0.4895,
        "faster_ratio": 0.021,
    }
    return MeasuredCertificate(**{**fields, **changes})


def a_trial(**changes):
    fields = {
        "strategy": a_strategy(),
        "description": "TP 2",
        "predicted": Interval(p10=0.4, p50=0.5, p90=0.6),
        "fits_probability": 0.99,
        "outcome": "measured",
        "step_seconds": (0.6, 0.5, 0.4),
    }
    return TuningTrial(**{**fields, **changes})


def a_tuning(**changes):
    plan = a_plan()
    fields = {
        "model": plan.model,
        "cluster": plan.cluster,
        "job": plan.job,
        "budget": TuningBudget(runs=3),
        "trials": (a_trial(),),
        "planner_version": "test",
    }
    return Tuning(**{**fields, **changes})


def test_the_claim_counts_all_configurations():
    assert claim(a_certificate()) == (
        "no plan of 41,514 configurations has more than a 10% chance of being more than 2.1% "
        "faster than what was measured"
    )
    assert "of being faster than what" in claim(a_certificate(faster_ratio=0.0))
    nothing = a_certificate(best_trial=None, step_seconds=None, faster_ratio=None)
    assert "nothing was measured" in claim(nothing)


def test_a_line_says_what_was_predicted_and_what_came_of_it():
    lost = a_trial(outcome="out_of_memory", step_seconds=(), reason="CUDA", log="a.log")
    tuning = a_tuning(trials=(a_trial(), lost))
    assert trial_line(tuning, 1) == (
        "trial 1 of 3: TP 2: predicted 500 ms (400 ms to 600 ms), measured 500 ms"
    )
    gib = 2.0**30
    metered = a_trial(peak_memory_bytes=63.5 * gib, predicted_peak_bytes=60.0 * gib)
    line = trial_line(a_tuning(trials=(metered,)), 1)
    assert line.endswith("measured 500 ms; tensors took 63.5 GiB, predicted 60 GiB")
    reserved = metered.model_copy(update={"peak_memory_kind": PeakKind.RESERVED})
    line = trial_line(a_tuning(trials=(reserved,)), 1)
    assert line.endswith("; 63.5 GiB were reserved, 60 GiB predicted for tensors")
    assert trial_line(tuning, 2).endswith("out of memory: CUDA; see a.log")


def test_the_end_names_trials_the_best_and_the_claim():
    lines = end_lines(a_tuning(certificate=a_certificate()))
    assert lines[0] == (
        "3 trials: 1 measured, 1 out of memory, 1 failed; the budget of 3 runs is spent"
    )
    assert lines[1] == "best: trial 1, 500 ms a step as measured (median)"
    assert len(lines) == 4


@pytest.mark.parametrize(
    ("message", "outcome"),
    [
        ("rank 1 failed: OutOfMemoryError: CUDA out of memory. Tried to allocate", "out_of_memory"),
        ("rank 0 failed: RuntimeError: [enforce fail] can't allocate memory: you", "out_of_memory"),
        ("rank 0 failed: MemoryError", "out_of_memory"),
        ("rank 0 was killed by SIGKILL", "failed"),
        ("rank 2 did not come to where other ranks waited", "failed"),
    ],
)
def test_a_launcher_s_error_is_read_as_what_it_was(tmp_path, message, outcome):
    said = {"status": "error", "exit_code": 1, "error": {"kind": "x", "message": message}}
    found = _failure(json.dumps(said) + "\n", tmp_path / "no.log", 1)
    assert (found["outcome"], found["reason"]) == (outcome, message)


def test_a_launcher_that_dies_without_a_word_is_known_by_its_log(tmp_path):
    log = tmp_path / "a.log"
    log.write_text("one\nSegmentation fault\n")
    assert _failure("", log, -11) == {"outcome": "failed", "reason": "Segmentation fault"}
    log.write_text("")
    assert _failure("", log, -11)["reason"] == "ended with exit status -11 and no message"


def test_the_run_that_was_added_last_is_the_trial_s(tmp_path):
    rows = tmp_path / "runs.jsonl"
    rows.write_text('{"steps_s": [9.0]}\n{"steps_s": [1.0, 2.0], "peak_mem_gib": 2.0}\n')
    found = _measured(rows)
    assert (found["step_seconds"], found["peak_memory_bytes"]) == ([1.0, 2.0], 2.0 * 2**30)
    rows.write_text('{"id": "x"}\n')
    assert _measured(rows)["outcome"] == "failed"


def test_what_could_not_be_kept_or_run_is_refused_before_a_trial(command, tmp_path):
    missing = str(tmp_path / "no" / "tuning.json")
    assert "--out: cannot be written" in command("tune", *CPU, "--out", missing).stderr
    out = ("--out", str(tmp_path / "tuning.json"))
    nowhere = command("tune", *CPU, *out, "--plan-out", str(tmp_path / "no" / "plan.json"))
    assert "--plan-out: cannot be written" in nowhere.stderr
    assert "budget.minutes: " in command("tune", *CPU, *out, "--minutes", "0").stderr
    assert "budget.minutes: " in command("tune", *CPU, *out, "--minutes", "nan").stderr
    assert "script: is not a file" in command("tune", *CPU, *out, "--", "nothing.py").stderr
    same = command("tune", *CPU, *out, "--plan-out", str(tmp_path / "." / "tuning.json"))
    assert "--plan-out: is where all trials are kept" in same.stderr
    own = command("tune", *CPU, "--out", str(tmp_path / "a.trials"))
    assert "--out: leaves no place for the folder of its trials" in own.stderr
    for minutes in ("0", "-1", "nan", "inf"):
        refused = command("tune", *CPU, *out, "--trial-minutes", minutes)
        assert "--trial-minutes: is not a time limit" in refused.stderr
    memory = command("tune", *CPU, *out, "--set", "objective=memory")
    assert "job.objective: is not what a tuning measures" in memory.stderr
    assert not (tmp_path / "tuning.json").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--detach",), "--detach: is for trials on a fleet"),
        (("--on", "http://x", "--device", "cpu"), "--device: is for trials on this machine"),
        (("--on", "http://x", "--template", "sh {config}"), "--template: is for trials on this"),
        (("--on", "http://x", "--trial-minutes", "5"), "--trial-minutes: is for trials on this"),
        (("--step-pattern", "x"), "--step-pattern: says what a job of --template prints"),
        (("--peak-pattern", "x"), "--peak-pattern: says what a job of --template prints"),
        (
            ("--template", "sh {config}", *TITAN, "--peak-pattern", "(?P<gib>x)"),
            "--peak-pattern: must have one named group",
        ),
        (("--template", "sh {config}", "--device", "cpu"), "--device: is not for the job of"),
        (("--template", "sh {config}"), "--framework: needs the framework whose job it is"),
        (("--template", "sh train.sh", *TITAN), "--template: uses nothing of the plan"),
        (
            ("--template", "no-such-program {config}", *TITAN),
            "--template: begins with a program that",
        ),
        (
            ("--template", "sh '{config}", *TITAN),
            "--template: is not a command: No closing quotation",
        ),
        (("--template", "sh {config}", "--framework", "accelerate"), "--step-pattern: is needed"),
        (
            ("--template", "sh {config}", *TITAN, "--step-pattern", "("),
            "is not a regular expression",
        ),
        (("--template", "sh {config}", *TITAN, "--step-pattern", "(x)"), "must have one named"),
    ],
)
def test_a_template_that_could_not_be_tried_is_refused_before_a_trial(
    command, tmp_path, words, said
):
    out = ("--out", str(tmp_path / "tuning.json"))
    refused = command("tune", *CPU, *out, *words)
    assert said in refused.stderr
    assert refused.exit_code == 1
    assert not (tmp_path / "tuning.json").exists()


KEPT = ("--sequence-length", "64", "--global-batch-size", "8")
RAN_WITH = {
    "model": (("gpt2", "2xcpu-gloo", *KEPT), "model.name"),
    "cluster": (("tiny-llama-cpu", "4xcpu-gloo", *KEPT), "cluster.name"),
    "script": (("--", "train.py"), "script"),
    "steps": (("--steps", "6"), "--steps"),
    "device": (("--device", "cpu"), "--device"),
    "template": (("--template", "sh {config}", *TITAN), "--template"),
    "step_pattern": (("--step-pattern", "b(?P<seconds>.)"), "--step-pattern"),
    "peak_pattern": (("--peak-pattern", "b(?P<allocated_gib>.)"), "--peak-pattern"),
    "job": (("--job", "job.yaml"), "job.precision"),
    "global_batch_size": (("--global-batch-size", "16"), "job.global_batch_size"),
    "sequence_length": (("--sequence-length", "128"), "job.sequence_length"),
    "precision": (("--precision", "fp32"), "job.precision"),
    "optimizer": (("--optimizer", "sgd"), "job.optimizer"),
    "stack": (("--stack", "megatron"), "job.stack"),
    "framework": (TITAN, "job.framework"),
    "calibration": (("--calibration", "learnt.yaml"), "job.calibration"),
    "settings": (("--set", "expert_load_ratio=1.5"), "job.expert_load_ratio"),
    "fits_probability": (("--fits-probability", "0.5"), "job.limits.fits_probability"),
    "solver_seconds": (("--solver-seconds", "7"), "job.limits.solver_seconds"),
}
"""Every option that trials are run with: words that change it, and what is then refused."""

LEARNT = {
    "name": "learnt",
    "date": "2026-11-27",
    "source": "runs.jsonl",
    "source_digest": "0" * 64,
    "planner_version": "test",
    "effects": [],
    "runs": [
        {
            "device": "cpu",
            "stack": "torch",
            "precision": "bf16",
            "device_count": 2,
            "tensor_parallel_degree": 1,
            "pipeline_parallel_degree": 1,
            "micro_batch_size": 1,
            "sequence_length": 64,
            "parameter_count": 1000,
            "log_error": 0.1,
            "shared_deviation": 0.1,
            "own_deviation": 0.1,
        }
    ],
}

ENDS_BY = {"runs", "minutes", "trial_minutes"}
TELLS = {"out", "plan_out", "json"}
OF_A_FLEET = {"on", "agent_command", "argument", "detach"}
PATTERNS = {"step_pattern", "peak_pattern"}


def test_every_option_of_tune_is_compared_or_known_not_to_matter():
    assert set(inspect.signature(tune).parameters) == {*RAN_WITH, *ENDS_BY, *TELLS, *OF_A_FLEET}


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A tuning without trials, in a folder where the words of `RAN_WITH` find their files."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    (tmp_path / "job.yaml").write_text("precision: fp32\n")
    (tmp_path / "learnt.yaml").write_text(json.dumps(LEARNT))

    def written(**changes):
        request = resolved_request(
            resolved_model("tiny-llama-cpu"),
            resolved_cluster("2xcpu-gloo"),
            Job(global_batch_size=8, sequence_length=64, framework=changes.pop("framework", None)),
        )
        tuning = a_tuning(
            model=request.model, cluster=request.cluster, job=request.job, trials=(), **changes
        )
        (tmp_path / "tuning.json").write_text(tuning.to_json())

    return written


@pytest.mark.parametrize("option", RAN_WITH)
def test_a_tuning_does_not_go_on_with_another(command, kept, option):
    words, field = RAN_WITH[option]
    before = ()
    if option in PATTERNS:
        before = ("--template", "sh {config}", *TITAN)
        kept(template="sh {config}", framework="torchtitan", **{option: "a(?P<seconds>.)"})
    elif option == "template":
        kept(template="sh -c {config}", framework="torchtitan")
    else:
        kept()
    places = () if option in {"model", "cluster"} else CPU
    refused = command("tune", *places, *before, *words)
    assert f"{field}: differs from the tuning in tuning.json, which has " in refused.stderr
    assert "give the same to go on, or another file as --out to begin anew" in refused.stderr
    assert refused.exit_code == 1


def test_what_one_of_two_tunings_does_not_say_is_none():
    had = a_tuning(device="cuda")
    asked = had.model_copy(update={"device": None})
    with pytest.raises(InputError, match=r"a\.json, which has cuda \(got none\); give the same"):
        continued(had, asked, path=Path("a.json"))
    with pytest.raises(InputError, match=r"a\.json, which has none \(got cuda\); give the same"):
        continued(asked, had, path=Path("a.json"))


def test_a_tuning_goes_on_with_another_budget_and_its_trials():
    """Runs, minutes and the time of a trial say when it ends, and no more."""
    had = a_tuning(budget=TuningBudget(runs=3))
    asked = had.model_copy(update={"budget": TuningBudget(runs=9, minutes=5.0), "trials": ()})
    found = continued(had, asked, path=Path("tuning.json"))
    assert (found.budget, found.trials) == (asked.budget, had.trials)


def test_two_commands_do_not_tune_into_one_file(command, tmp_path):
    folder = tmp_path / "tuning.trials"
    folder.mkdir()
    handle = os.open(folder, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    refused = command("tune", *CPU, "--out", str(tmp_path / "tuning.json"))
    os.close(handle)
    assert "--out: is being tuned into by another command" in refused.stderr
    assert not (tmp_path / "tuning.json").exists()
