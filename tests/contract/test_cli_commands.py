"""The commands on good input: what one writes the others read, and exit codes say what came out."""

from __future__ import annotations

import json
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from planner.answers.comparison import Comparison
from planner.cli.app import invoke
from planner.schema.plan import Estimate, Plan

MODEL = "tiny-llama-cpu"
CLUSTER = "2xcpu-gloo"
JOB = ("--global-batch-size", "8", "--sequence-length", "64", "--precision", "fp32")


def run(*words: object) -> tuple[int, str]:
    """Return the exit code and the stdout of a command that says nothing on stderr."""
    with redirect_stdout(StringIO()) as stdout, redirect_stderr(StringIO()) as stderr:
        exit_code = invoke([str(word) for word in words])
    assert stderr.getvalue() == ""
    return exit_code, stdout.getvalue()


@pytest.fixture(scope="module")
def plan_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan as the command writes it."""
    path = tmp_path_factory.mktemp("plans") / "plan.json"
    assert run("plan", MODEL, CLUSTER, *JOB, "--out", path)[0] == 0
    return path


def test_plan_prints_what_it_writes(plan_path):
    exit_code, stdout = run("plan", MODEL, CLUSTER, *JOB, "--json")
    printed, written = Plan.model_validate_json(stdout), Plan.read(plan_path)
    assert (exit_code, printed.id, printed.strategy) == (0, written.id, written.strategy)


def test_options_override_the_job_file(tmp_path):
    job = tmp_path / "job.yaml"
    job.write_text("global_batch_size: 64\nsequence_length: 64\nprecision: fp32\n")
    _, stdout = run("plan", MODEL, CLUSTER, "--job", job, "--global-batch-size", 8, "--json")
    resolved = Plan.model_validate_json(stdout).job.resolved
    assert (resolved.global_batch_size, resolved.sequence_length) == (8, 64)


@pytest.mark.parametrize(("degree", "allowed"), [("2", {2}), ("1..1", {1}), ("1..2", {1, 2})])
def test_degrees_stay_within_their_option(degree, allowed):
    _, stdout = run("plan", MODEL, CLUSTER, *JOB, "--tensor-parallel-degree", degree, "--json")
    assert Plan.model_validate_json(stdout).strategy.tensor_parallel_degree in allowed


def test_written_plan_verifies(plan_path):
    assert run("verify", plan_path, "--json") == (
        0,
        json.dumps({"status": "verified", "id": Plan.read(plan_path).id}) + "\n",
    )


def test_the_bound_of_a_written_plan_verifies_by_its_record(tmp_path):
    path, record = tmp_path / "plan.json", tmp_path / "record.json"
    run("plan", MODEL, CLUSTER, *JOB, "--out", path, "--certificate-out", record)
    exit_code, stdout = run("verify", path, "--certificate", record, "--json")
    checked, said = json.loads(stdout)["certificate"], Plan.read(path).certificate
    parts = [checked["infeasible"], checked["bounded"], *checked["trusted"].values()]
    assert (exit_code, sum(parts)) == (0, said.configurations_total)
    assert "none below the bound" in run("verify", path, "--certificate", record)[1]


def test_estimate_of_a_plan_returns_its_prediction(plan_path):
    exit_code, stdout = run("estimate", MODEL, CLUSTER, *JOB, "--strategy", plan_path, "--json")
    assert exit_code == 0
    assert Estimate.model_validate_json(stdout).prediction == Plan.read(plan_path).prediction


def test_many_strategies_give_one_line_each_and_an_error_keeps_its_place(tmp_path):
    path = tmp_path / "strategies.jsonl"
    lines = [
        {"tensor_parallel_degree": 2},
        {"tensor_parallel_degree": 7},
        {"data_parallel_degree": 2},
    ]
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    exit_code, stdout = run("estimate", MODEL, CLUSTER, *JOB, "--strategies", path, "--json")
    answers = [json.loads(line) for line in stdout.splitlines()]
    assert [(answer["index"], answer["status"]) for answer in answers] == [
        (0, "estimated"),
        (1, "error"),
        (2, "estimated"),
    ]
    assert answers[1]["error"]["remedy"]
    assert exit_code == 1


def test_strategy_that_does_not_fit_exits_with_3(tmp_path):
    path = tmp_path / "s.json"
    path.write_text(json.dumps({"data_parallel_degree": 8}))
    exit_code, stdout = run(
        "estimate", "llama-3-70b", "8xh100-sxm5-80gb", "--global-batch-size", 8,
        "--strategy", path, "--json",
    )  # fmt: skip
    assert exit_code == 3
    assert not Estimate.model_validate_json(stdout).prediction.fits


def test_infeasible_job_is_an_answer_that_exits_with_3():
    exit_code, stdout = run(
        "plan", "llama-3-70b", "1xh100-sxm5-80gb", "--global-batch-size", 8,
        "--sequence-length", 4096, "--json",
    )  # fmt: skip
    answer = json.loads(stdout)
    assert (exit_code, answer["status"]) == (3, "infeasible")
    assert answer["binding"]


def test_infeasible_job_is_explained_to_a_person():
    exit_code, stdout = run(
        "plan", "llama-3-70b", "1xh100-sxm5-80gb", "--global-batch-size", 8,
        "--sequence-length", 4096,
    )  # fmt: skip
    assert exit_code == 3
    assert "What would make it fit" in stdout


def test_plans_are_compared_as_a_document(plan_path, tmp_path):
    other = tmp_path / "other.json"
    run("plan", MODEL, CLUSTER, *JOB, "--tensor-parallel-degree", 2, "--out", other)
    exit_code, stdout = run("compare", plan_path, other, "--json")
    comparison = Comparison.model_validate_json(stdout)
    assert exit_code == 0
    assert [plan.model for plan in comparison.plans] == [MODEL, MODEL]


@pytest.mark.parametrize("command", ["plan", "estimate", "compare", "verify", "models", "devices"])
def test_every_command_prints_for_a_person(command, plan_path):
    words = {
        "plan": (MODEL, CLUSTER, *JOB),
        "estimate": (MODEL, CLUSTER, *JOB, "--strategy", plan_path),
        "compare": (plan_path, plan_path),
        "verify": (plan_path,),
    }
    exit_code, stdout = run(command, *words.get(command, ()))
    assert exit_code == 0
    assert not stdout.startswith("{")
    assert len(stdout.strip()) > 10


def test_model_and_device_lists_are_documents():
    models, devices = (json.loads(run(name, "--json")[1]) for name in ("models", "devices"))
    sizes = {model["name"]: model["parameter_count"] for model in models["models"]}
    assert sizes["llama-3-8b"] == 8_030_261_248
    nodes = {device["name"]: device["devices_per_node"] for device in devices["devices"]}
    assert (nodes["h100-sxm5-80gb"], nodes["gb200-nvl72"], nodes["cpu-gloo"]) == (8, 4, None)
