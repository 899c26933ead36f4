"""`meshwright calibrate`, and what it writes in the hands of the other commands."""

from __future__ import annotations

import functools
import json
import re
import statistics
from pathlib import Path

import pytest
import yaml

from planner.cli.app import invoke
from planner.planning import estimate, plan, resolved_cluster, resolved_model
from planner.schema.calibration import CalibrationProfile
from planner.schema.job import Job
from planner.schema.plan import Plan
from planner.schema.scalars import Scalars
from tests.calibration_rows import TRUTH, measured_fields
from tests.measured_rows import TORCHTITAN

REQUEST = ("llama-3-8b", "8xa100-sxm4-80gb", "--global-batch-size", "16", "--sequence-length")
DEVICE = "a100-sxm4-80gb"


def written(path: Path, rows: list[dict[str, object]]) -> Path:
    """Write one row a line."""
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of a machine with other scalars than the shipped ones."""
    return written(
        tmp_path_factory.mktemp("runs") / "runs.jsonl", measured_fields(TRUTH, noise=0.03)
    )


@pytest.fixture(scope="module")
def profile_text(runs: Path) -> str:
    """The profile that they give, fitted once."""
    path = runs.with_name("ours.yaml")
    assert invoke(["calibrate", str(runs), "--out", str(path)]) == 0
    return path.read_text()


@pytest.fixture
def profile(profile_text: str, tmp_path: Path) -> Path:
    """A file of its own with that profile."""
    path = tmp_path / "ours.yaml"
    path.write_text(profile_text)
    return path


def test_the_profile_says_what_it_rests_on(command, runs, tmp_path):
    path = tmp_path / "ours.yaml"
    done = command("calibrate", runs, "--out", path)
    assert done.exit_code == 0
    said = " ".join(done.stdout.split())
    assert "taken: knowing the other runs predicts a run better" in said
    assert re.search(
        r"a100-sxm4-80gb torch bf16: steps take \d+% longer than predicted, within \d+%, where"
        r" \d+% was known before; 24 runs say \d+% of it",
        said,
    )
    fields = yaml.safe_load(path.read_text())
    assert len(fields["runs"]) == 24
    assert {run["device"] for run in fields["runs"]} == {DEVICE}
    (effect,) = fields["effects"]
    assert effect["left_ratio"] < 0.5 * effect["prior_ratio"]
    assert fields["held_out"]["mean_after_ratio"] < fields["held_out"]["mean_before_ratio"]
    assert fields["name"] == "ours"
    assert fields["source"] == "runs.jsonl"
    assert len(fields["source_digest"]) == 64


def test_json_is_one_document_with_the_profile_that_was_written(command, runs, tmp_path):
    path = tmp_path / "ours.yaml"
    report = command("calibrate", runs, "--out", path, "--json").fields
    assert report["profile"] == CalibrationProfile.read(path).model_dump(mode="json")
    assert (report["run_count"], report["accepted"]) == (24, True)


def test_a_plan_carries_what_was_learnt_and_survives_verification(command, profile, tmp_path):
    plan_path = tmp_path / "plan.json"
    done = command("plan", *REQUEST, "4096", "--calibration", profile, "--out", plan_path, "--json")
    assert done.exit_code == 0
    job = done.fields["job"]["resolved"]
    written_profile = CalibrationProfile.read(profile)
    assert job["calibration"]["digest"] == written_profile.digest()
    assert job["calibration"]["runs"] == written_profile.model_dump(mode="json")["runs"]
    assert command("verify", plan_path).exit_code == 0
    priced = command(
        "estimate", *REQUEST, "4096", "--strategy", plan_path, "--calibration", profile, "--json"
    ).fields
    assert priced["prediction"]["step_seconds"]["p50"] == pytest.approx(
        done.fields["prediction"]["step_seconds"]["p50"], rel=1e-9
    )
    shipped = command("estimate", *REQUEST, "4096", "--strategy", plan_path, "--json").fields
    slower = priced["prediction"]["step_seconds"]["p50"]
    assert 1.1 < slower / shipped["prediction"]["step_seconds"]["p50"] < 1.7
    widths = [
        one["prediction"]["step_seconds"]["p90"] / one["prediction"]["step_seconds"]["p50"]
        for one in (priced, shipped)
    ]
    assert widths[0] - 1.0 < 0.6 * (widths[1] - 1.0)
    assert shipped["job"]["digest"] != priced["job"]["digest"]


def test_a_plan_whose_runs_were_changed_is_refused(command, profile, tmp_path):
    plan_path = tmp_path / "plan.json"
    command("plan", *REQUEST, "4096", "--calibration", profile, "--out", plan_path)
    plan = json.loads(plan_path.read_text())
    for run in plan["job"]["resolved"]["calibration"]["runs"]:
        run["log_error"] += 0.5
    plan_path.write_text(json.dumps(plan))
    assert command("verify", plan_path).exit_code == 3


def test_validation_with_the_profile_is_closer(command, runs, profile):
    shipped = command("validate", runs, "--json").fields
    ours = command("validate", runs, "--calibration", profile, "--json").fields
    assert shipped["subsets"][0]["step"]["mape_ratio"] > 0.15
    assert ours["subsets"][0]["step"]["mape_ratio"] < 0.05


def test_runs_that_are_noise_leave_the_shipped_profile(command, tmp_path):
    rows = measured_fields(Scalars(), noise=0.2)
    path = tmp_path / "ours.yaml"
    done = command("calibrate", written(tmp_path / "noise.jsonl", rows), "--out", path)
    assert done.exit_code == 3
    assert "nothing written: shipped values stay" in done.stdout
    assert not path.exists()


@pytest.mark.parametrize(
    "request_of", [(*REQUEST, "4096", "--stack", "megatron"), ("llama-3-8b", "8xh100-sxm5-80gb")]
)
def test_what_there_are_no_runs_of_is_said_and_moved_by_the_others(command, profile, request_of):
    done = command("plan", *request_of, "--calibration", profile, "--json")
    assert done.exit_code == 0
    assert any("has no runs under" in said for said in done.fields["explanation"]["assumptions"])


def test_runs_of_one_device_can_be_chosen(command, runs, tmp_path):
    path = tmp_path / "ours.yaml"
    done = command("calibrate", runs, "--out", path, "--device", "h100-sxm5-80gb")
    assert done.exit_code == 1
    assert "no run can be fitted: 24 another device" in done.stderr
    assert "did you mean" in command("calibrate", runs, "--out", path, "--device", "h100").stderr


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"gpu": "T4"}', "1 unpriced: sequence: seq_len"),
        ("", "holds no run"),
        (json.dumps({**TORCHTITAN, "tokens_per_s_per_gpu": None}), "1 step: not_measured"),
        (json.dumps({**TORCHTITAN, "precision": "nvfp4"}), "1 unpriced: precision: nvfp4"),
    ],
)
def test_a_file_without_a_fit_is_one_message(command, tmp_path, content, said):
    path = tmp_path / "runs.jsonl"
    path.write_text(content)
    done = command("calibrate", path, "--out", tmp_path / "ours.yaml")
    assert done.exit_code == 1
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_keys_that_the_format_does_not_have_are_named(command, tmp_path):
    rows = [{**TORCHTITAN, "los_kernel": "linear"}, {**TORCHTITAN, "tokens_per_s_per_gpu": 2900.0}]
    path = tmp_path / "runs.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    done = command("calibrate", path, "--out", tmp_path / "ours.yaml")
    assert "los_kernel of 1 run is not read; use loss_kernel?" in done.stdout
    told = command("calibrate", path, "--out", tmp_path / "ours.yaml", "--json").fields["unread"]
    assert [(one["name"], one["run_count"]) for one in told] == [("los_kernel", 1)]


def test_a_bad_field_is_named_with_its_value_and_the_remedy(command, runs, tmp_path):
    """Of two rows the first is shown, where nothing can be fitted and beside what was learnt."""
    bad = [json.dumps({**TORCHTITAN, "mbs": value}) for value in (-3, "many")]
    alone, beside = tmp_path / "bad.jsonl", tmp_path / "both.jsonl"
    alone.write_text("\n".join(bad))
    beside.write_text("\n".join([runs.read_text().strip(), *bad]))
    refused = command("calibrate", alone, "--out", tmp_path / "ours.yaml").stderr
    assert "2 unpriced: field: " in refused
    for words in ("line 1", "mbs", "-3", "use 1 or more"):
        assert words in refused
    told = command("calibrate", beside, "--out", tmp_path / "ours.yaml", "--json").fields
    (reason,) = told["left_out"]
    assert told["left_out"][reason] == 2
    assert "mbs" in reason
    assert "-3" in reason


@pytest.mark.parametrize("place", ["ours.json", "nowhere/ours.yaml"])
def test_a_place_that_cannot_hold_a_profile_is_refused_before_the_work(
    command, runs, tmp_path, place
):
    done = command("calibrate", runs, "--out", tmp_path / place)
    assert done.exit_code == 1
    assert "--out" in done.stderr


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("shared_deviation: 0.", "shared_deviation: -0."), "is too small"),
        (("stack: torch", "stack: horovod"), "runs.0.stack"),
        (("\nruns:", "\nruuns:"), "runs: is required"),
    ],
)
def test_a_broken_profile_is_one_message(command, profile, change, said):
    profile.write_text(profile.read_text().replace(*change, 1))
    done = command("plan", *REQUEST, "4096", "--calibration", profile)
    assert done.exit_code == 1
    assert said in done.stderr


def own_run(step_seconds: list[float]) -> dict[str, object]:
    """The row of a run of one's own, as `meshwright run --runs` adds it."""
    followed = a_cpu_plan()
    return {
        "id": followed.id,
        "plan": followed.model_dump(mode="json"),
        "outcome": "ok",
        "step_time_s": statistics.median(step_seconds),
        "steps_s": step_seconds,
    }


@functools.cache
def a_cpu_plan() -> Plan:
    """A plan of four CPU ranks."""
    job = Job(global_batch_size=16, sequence_length=128, precision="fp32")
    answer = plan(resolved_model("tiny-llama-cpu"), resolved_cluster("4xcpu-gloo"), job)
    assert isinstance(answer, Plan)
    return answer


def test_a_run_of_ones_own_moves_and_narrows_its_prediction(command, tmp_path):
    """1.2 times as slow as predicted: nearly nine tenths of that are learnt from one run."""
    predicted = a_cpu_plan().prediction.step_seconds.p50
    rows = written(tmp_path / "runs.jsonl", [own_run([1.2 * predicted] * 20)])
    done = command("calibrate", rows, "--out", tmp_path / "here.yaml")
    assert done.exit_code == 0
    assert "taken: a single run" in done.stdout
    learnt = CalibrationProfile.read(tmp_path / "here.yaml").calibration()
    job = a_cpu_plan().job.resolved.model_copy(update={"calibration": learnt})
    answer = a_cpu_plan()
    after = estimate(answer.model, answer.cluster, job, answer.strategy).prediction.step_seconds
    assert 1.12 * predicted < after.p50 < 1.2 * predicted
    assert after.p90 / after.p50 < answer.prediction.step_seconds.p90 / predicted


def test_a_run_whose_later_steps_deny_the_earlier_ones_teaches_little(command, tmp_path):
    """Their deviation of 0.31 is more than what runs share."""
    predicted = a_cpu_plan().prediction.step_seconds.p50
    steps = [1.5 * predicted] * 10 + [0.8 * predicted] * 10
    rows = written(tmp_path / "runs.jsonl", [own_run(steps)])
    assert command("calibrate", rows, "--out", tmp_path / "here.yaml").exit_code == 0
    (effect,) = CalibrationProfile.read(tmp_path / "here.yaml").effects
    assert effect.said_ratio < 1 / 3


def test_a_bad_plan_in_a_row_is_named(command, tmp_path):
    row = {**own_run([1.0] * 4), "plan": {"id": "x"}}
    rows = written(tmp_path / "runs.jsonl", [row])
    done = command("calibrate", rows, "--out", tmp_path / "here.yaml")
    assert done.exit_code == 1
    assert "no run can be fitted" in done.stderr
