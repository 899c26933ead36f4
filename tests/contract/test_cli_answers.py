"""Explain, frontier, size and check: what they print, and how they refuse."""

from __future__ import annotations

import json
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest

from planner.cli.app import invoke
from planner.schema.check import CheckReport
from planner.schema.frontier import Frontier
from planner.schema.plan import Estimate, Plan
from planner.schema.reasons import Reasons
from planner.schema.sizing import Sizing

MODEL = "tiny-llama-cpu"
CLUSTER = "2xcpu-gloo"
JOB = ("--global-batch-size", "8", "--sequence-length", "64", "--precision", "fp32")
# Few choices, so that points are soon proven.
FEW = ("--set", "limits.activation_checkpointing=[none]", "--set", "limits.offload=[]")
SIZE = ("size", MODEL, "--device", "cpu-gloo", "--devices-per-node", "2", "--max-devices", "8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one command did."""

    exit_code: int
    stdout: str
    stderr: str


def run(*words: object) -> Outcome:
    """Run the command line in this process."""
    with redirect_stdout(StringIO()) as stdout, redirect_stderr(StringIO()) as stderr:
        exit_code = invoke([str(word) for word in words])
    return Outcome(exit_code=exit_code, stdout=stdout.getvalue(), stderr=stderr.getvalue())


@pytest.fixture(scope="module")
def plan_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan as the command writes it."""
    path = tmp_path_factory.mktemp("plans") / "plan.json"
    assert run("plan", MODEL, CLUSTER, *JOB, "--out", path).exit_code == 0
    return path


def test_explain_is_a_document_about_the_plan(plan_path):
    done = run("explain", plan_path, "--why-not", "tensor_parallel_degree=2", "--heatmap", "--json")
    found = Reasons.model_validate_json(done.stdout)
    assert (done.exit_code, done.stderr) == (0, "")
    assert found.plan_id == Plan.read(plan_path).id
    assert [objection.asked for objection in found.objections] == ["tensor_parallel_degree=2"]
    assert found.heatmap.rows == (1, 2)
    assert {price.resource for price in found.shadow_prices} == {"device_memory", "host_memory"}


def test_an_objection_may_be_a_file(plan_path, tmp_path):
    mine = tmp_path / "mine.json"
    mine.write_text(json.dumps({"tensor_parallel_degree": 7}))
    done = run("explain", plan_path, "--why-not", mine, "--why-not", plan_path, "--json")
    found = Reasons.model_validate_json(done.stdout)
    assert [objection.verdict for objection in found.objections] == ["illegal", "as_fast"]


def test_a_strategy_of_an_answer_can_be_estimated(plan_path, tmp_path):
    done = run("explain", plan_path, "--why-not", "tensor_parallel_degree=2", "--json")
    objection = Reasons.model_validate_json(done.stdout).objections[0]
    path = tmp_path / "s.json"
    path.write_text(objection.strategy.to_json())
    priced = run("estimate", MODEL, CLUSTER, *JOB, "--strategy", path, "--json")
    assert Estimate.model_validate_json(priced.stdout).prediction.step_seconds.p50 == pytest.approx(
        objection.step_seconds, rel=1e-9
    )


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--why-not", "colour=3"), "colour"),
        (("--why-not", "="), "--why-not"),
        (("--why-not", "tensor_parallel_degree=x"), "tensor_parallel_degree"),
        (("--why-not", "zero_stage=9"), "zero_stages"),
        (("--why-not", "absent.json"), "absent.json"),
        (("--why-not", "tensor_parallel_degree=9999999"), "tensor_parallel_degree"),
        (("--why-not", "sequence_parallel=maybe"), "sequence_parallel"),
        (("--why-not", "offload=tape"), "offload"),
        (("--why-not", "micro_batch_size=0"), "micro_batch_size"),
        (("--solver-seconds", "-1"), "solver_seconds"),
        (("--solver-seconds", "nan"), "solver_seconds"),
        (("--heatmap", "--axes", "a,b"), "axes"),
        (("--heatmap", "--axes", "tensor_parallel_degree"), "--axes"),
    ],
)
def test_explain_refuses_in_one_line(plan_path, words, part):
    done = run("explain", plan_path, *words)
    assert (done.exit_code, done.stdout) == (1, "")
    assert len(done.stderr.strip().splitlines()) == 1
    assert part in done.stderr
    assert "unexpected" not in done.stderr


def test_a_plan_that_was_edited_is_not_explained(plan_path, tmp_path):
    fields = json.loads(plan_path.read_text())
    fields["prediction"]["step_seconds"]["p50"] /= 2.0
    edited = tmp_path / "edited.json"
    edited.write_text(json.dumps(fields))
    done = run("explain", edited)
    assert done.exit_code == 3
    assert "verification failed" in done.stderr


def test_frontier_is_a_document_of_proven_points():
    words = ("--points", 3, "--alternatives", 2, "--json")
    done = run("frontier", MODEL, CLUSTER, *JOB, *FEW, *words)
    found = Frontier.model_validate_json(done.stdout)
    assert (done.exit_code, found.status) == (0, "complete")
    *others, _ = sorted(found.points, key=lambda point: -point.peak_memory_bytes)  # least peak: any
    assert {point.certificate.status for point in others} == {"optimal"}
    assert [plan.rank for plan in found.alternatives] == [1, 2]
    assert all("in place of" in plan.differs[0] for plan in found.other_choices)


def test_frontier_of_a_job_that_fits_nowhere_exits_with_3():
    done = run(
        "frontier", "llama-3-70b", "1xh100-sxm5-80gb", "--global-batch-size", 8,
        "--points", 2, "--json",
    )  # fmt: skip
    found = Frontier.model_validate_json(done.stdout)
    assert (done.exit_code, found.status, found.points) == (3, "infeasible", ())
    assert found.infeasible.binding[0].limit in {"device_memory", "host_memory"}
    assert found.infeasible.job == found.job


def test_frontier_of_a_job_without_legal_degrees_says_what_plan_says():
    limited = ("--set", "limits.tensor_parallel_degree=3")
    done = run("frontier", MODEL, CLUSTER, *JOB, "--points", 2, *limited)
    assert done.exit_code == 3
    assert "What binds" in done.stdout
    assert "lift the limit on tensor_parallel_degree" in done.stdout
    assert done.stdout == run("plan", MODEL, CLUSTER, *JOB, *limited).stdout


def test_size_is_a_document_of_everything_tried():
    done = run(*SIZE, *JOB, "--tokens", 1e6, "--days", 1, "--json")
    found = Sizing.model_validate_json(done.stdout)
    assert (done.exit_code, found.status, found.proven) == (0, "found", True)
    assert found.answer.days <= 1.0
    assert found.answer.device_count in found.ranges[0].tried


def test_size_that_nothing_meets_exits_with_3():
    done = run(*SIZE, *JOB, "--tokens", 1e12, "--days", 1, "--json")
    found = Sizing.model_validate_json(done.stdout)
    assert (done.exit_code, found.status, found.binding) == (3, "none", "deadline")
    assert found.nearest_miss.days > 1.0


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--tokens", "-1", "--days", 1), "tokens"),
        (("--tokens", "nan", "--days", 1), "tokens"),
        (("--tokens", "1e6", "--days", 0), "days"),
        (("--tokens", "1e6", "--days", 1, "--budget", "-5"), "budget"),
        (("--tokens", "1e6", "--days", 1, "--max-devices", 0), "max_devices"),
        (("--tokens", "1e6", "--days", 1, "--devices-per-node", 9999), "devices_per_node"),
        (("--tokens", "1e6", "--days", 1, "--device", "abacus"), "abacus"),
        (("--tokens", "1e6", "--days", 1, "--device", "a100"), "a100-sxm4-40gb or a100-sxm4-80gb"),
    ],
)
def test_size_refuses_in_one_line(words, part):
    done = run(*SIZE, *words)
    assert (done.exit_code, done.stdout) == (1, "")
    assert len(done.stderr.strip().splitlines()) == 1
    assert part in done.stderr
    assert "unexpected" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [("frontier", MODEL, CLUSTER, *JOB), (*SIZE, *JOB, "--tokens", 1e6, "--days", 1)],
    ids=["frontier", "size"],
)
def test_running_out_of_time_is_no_negative_answer(words):
    done = run(*words, "--solver-seconds", 1e-9)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "job.limits.solver_seconds" in done.stderr


def test_size_without_a_deadline_is_a_usage_error():
    done = run("size", MODEL, "--device", "cpu-gloo", "--tokens", 1e6)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--days" in done.stderr


def test_check_takes_the_job_of_the_plan(plan_path):
    done = run("check", plan_path, MODEL, CLUSTER, "--baseline", plan_path, "--json")
    report = CheckReport.model_validate_json(done.stdout)
    assert (done.exit_code, report.status) == (0, "passed")
    assert report.job.resolved == Plan.read(plan_path).job.resolved


def test_check_that_fails_exits_with_3_and_writes_its_report(plan_path, tmp_path):
    junit = tmp_path / "report.xml"
    done = run("check", plan_path, MODEL, "4xcpu-gloo", "--junit", junit, "--json")
    report = CheckReport.model_validate_json(done.stdout)
    assert (done.exit_code, report.status) == (3, "failed")
    assert "<failure" in junit.read_text()


def test_check_refuses_a_place_that_it_cannot_write_to(plan_path, tmp_path):
    done = run("check", plan_path, MODEL, CLUSTER, "--junit", tmp_path)
    assert done.exit_code == 1
    assert "--junit" in done.stderr


@pytest.mark.parametrize(("ratio", "exit_code"), [("inf", 1), ("nan", 2), ("-0.1", 2)])
def test_check_refuses_a_slowdown_that_is_no_ratio(plan_path, ratio, exit_code):
    done = run("check", plan_path, MODEL, CLUSTER, "--max-slowdown", ratio)
    assert (done.exit_code, done.stdout) == (exit_code, "")
    assert "--max-slowdown" in done.stderr


@pytest.mark.parametrize("command", ["explain", "frontier", "size", "check"])
def test_every_answer_prints_for_a_person(command, plan_path):
    words = {
        "explain": ("explain", plan_path, "--heatmap", "--why-not", "tensor_parallel_degree=3"),
        "frontier": ("frontier", MODEL, CLUSTER, *JOB, *FEW, "--points", 2, "--alternatives", 2),
        "size": (*SIZE, *JOB, "--tokens", 1e6, "--days", 1, "--cheapest"),
        "check": ("check", plan_path, MODEL, CLUSTER),
    }
    done = run(*words[command])
    assert (done.exit_code, done.stderr) == (0, "")
    assert not done.stdout.startswith("{")
    assert len(done.stdout.strip()) > 10
