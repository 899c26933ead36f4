"""What a user runs today, given to estimate, check and compare, and plans written for others."""

from __future__ import annotations

import json
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

import pytest

from planner.cli.app import invoke

TINY = ("tiny-llama-cpu", "2xcpu-gloo")
JOB = ("--global-batch-size", "8", "--sequence-length", "64", "--precision", "fp32")
DEEPSPEED = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 1}}
MEGATRON = "--tensor-model-parallel-size 2 --micro-batch-size 2 --global-batch-size 8"


def run(*words):
    """The exit code, stdout and stderr of a command."""
    with redirect_stdout(StringIO()) as stdout, redirect_stderr(StringIO()) as stderr:
        exit_code = invoke([str(word) for word in words])
    return exit_code, stdout.getvalue(), stderr.getvalue()


@pytest.fixture
def files(tmp_path):
    """A plan, a DeepSpeed configuration and Megatron's arguments in one folder."""
    (tmp_path / "deepspeed.json").write_text(json.dumps(DEEPSPEED))
    (tmp_path / "megatron.sh").write_text(MEGATRON)
    run("plan", *TINY, *JOB, "--out", tmp_path / "plan.json")
    return tmp_path


def test_estimate_prices_a_deepspeed_configuration(files):
    code, out, said = run("estimate", *TINY, *JOB, "--strategy", files / "deepspeed.json", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["job"]["resolved"]["stack"] == "deepspeed"
    assert found["strategy"]["micro_batch_size"] == 2
    assert said.startswith("assumed: ")


def test_options_hold_over_what_the_file_says(files):
    words = ("--global-batch-size", 16, "--sequence-length", 64, "--precision", "fp32")
    _, out, _ = run("estimate", *TINY, *words, "--strategy", files / "megatron.sh", "--json")
    found = json.loads(out)
    assert found["job"]["resolved"]["global_batch_size"] == 16
    assert found["strategy"]["micro_batch_count"] == 8


def test_check_names_rules_as_the_file_does(files):
    (files / "megatron.sh").write_text(f"{MEGATRON} --context-parallel-size 1")
    code, out, _ = run("check", files / "megatron.sh", "mixtral-8x7b", "2xh100-sxm5-80gb", "--json")
    (rule,) = json.loads(out)["rules"]
    assert code == 3
    assert rule.startswith("--sequence-parallel False: megatron refuses a mixture of experts")
    assert "--tensor-model-parallel-size 2" in rule


def test_compare_prices_a_configuration_on_the_jobs_of_the_plan(files):
    code, out, _ = run("compare", files / "plan.json", files / "deepspeed.json", "--json")
    found = json.loads(out)
    assert code == 0
    assert [one["id"] for one in found["plans"]][1] == "estimate"
    assert not found["jobs_differ"]


def test_a_text_with_flags_of_another_program_is_no_configuration(files):
    (files / "Makefile").write_text("test:\n\tpytest --numprocesses 2 --dist worksteal\n")
    code, _, said = run("estimate", *TINY, *JOB, "--strategy", files / "Makefile")
    assert code == 1
    assert "has no flag that says a batch or a parallelism to Megatron-LM" in said


def test_accelerate_s_yaml_may_have_anchors(files):
    (files / "accelerate.yaml").write_text(
        "shared: &fsdp\n  fsdp_version: 2\n  fsdp_reshard_after_forward: true\n"
        "distributed_type: FSDP\nfsdp_config:\n  <<: *fsdp\nnum_processes: 2\n"
    )
    code, out, _ = run("estimate", *TINY, *JOB, "--strategy", files / "accelerate.yaml", "--json")
    assert code == 0
    (stage,) = json.loads(out)["strategy"]["stages"]
    assert {group["zero_stage"] for group in stage["layers"]} == {3}


def test_export_writes_files_and_says_what_it_lost(files):
    out = files / "launch"
    code, printed, _ = run("export", files / "plan.json", "--to", "slurm", "--out", out)
    assert code == 0
    assert sorted(path.name for path in out.iterdir()) == ["plan.json", "slurm.sh"]
    assert "slurm.sh" in printed


def test_export_to_an_unknown_target_names_those_there_are(files):
    code, _, said = run("export", files / "plan.json", "--to", "megatron")
    assert code == 1
    assert "megatron-lm" in said


def test_export_prints_json(files):
    _, out, _ = run("export", files / "plan.json", "--to", "torchrun", "--json")
    assert [file["name"] for file in json.loads(out)["files"]] == ["torchrun.sh", "plan.json"]
