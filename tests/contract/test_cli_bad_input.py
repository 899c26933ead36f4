"""Bad input of every kind, through the real command: one line, an exit code, no traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest

from planner.cli.app import invoke
from tests.builders import a_plan

ROOT = Path(__file__).parents[2]
MODEL = "llama-3-8b"
CLUSTER = "8xh100-sxm5-80gb"

CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 128,
}
GROUP = {"name": "g", "device": "h100-sxm5-80gb", "node_count": 1, "devices_per_node": 8}
CLUSTER_FIELDS = {"name": "c", "node_groups": [GROUP]}
LEVELS = [{"name": "node", "bandwidth_bytes_per_second": -1e9, "latency_seconds": 1e-6}]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one command did."""

    exit_code: int
    stdout: str
    stderr: str


def run_command(*words: object) -> Outcome:
    """Run the command line in this process, which is quick."""
    with redirect_stdout(StringIO()) as stdout, redirect_stderr(StringIO()) as stderr:
        exit_code = invoke([str(word) for word in words])
    return Outcome(exit_code=exit_code, stdout=stdout.getvalue(), stderr=stderr.getvalue())


def run_process(*words: object) -> Outcome:
    """Run the command line in its own process, under a time limit."""
    done = subprocess.run(
        [sys.executable, "-m", "planner.cli", *[str(word) for word in words]],
        cwd=ROOT,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    return Outcome(exit_code=done.returncode, stdout=done.stdout, stderr=done.stderr)


def refused(done: Outcome, *parts: str, exit_code: int = 1) -> None:
    """Check that the command failed with one line on stderr that has all `parts`."""
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("error: ")
    assert "unexpected" not in lines[0]
    for part in parts:
        assert part in lines[0]
    assert done.exit_code == exit_code
    assert done.stdout == ""


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str, object], Path]:
    """Write a file of the given name: bytes and text as they are, anything else as JSON."""

    def write(name: str, content: object) -> Path:
        path = tmp_path / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return write


def test_missing_model_file():
    refused(run_process("plan", "absent/config.json", CLUSTER), "absent/config.json")


def test_directory_as_a_model(tmp_path):
    refused(run_process("plan", tmp_path, CLUSTER), str(tmp_path))


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"", ("config.json", "not valid JSON")),
        (b'{"model_type": "llama", "hidden_size": 64', ("config.json", "line 1")),
        (b"\x93NUMPY\x01\x00\xff\xfe", ("config.json", "not UTF-8")),
        (b"[1, 2, 3]", ("config.json", "mapping")),
        (b'{"pad": "' + b"x" * 10 * 2**20 + b'"}', ("config.json", "larger than")),
        (b'{"model_type": "llama", "hidden_size": NaN}', ("hidden_size", "finite")),
        (b'{"model_type": "perceptron"}', ("model_type", "perceptron")),
        (b'{"a": ' + b"[" * 5000 + b"]" * 5000 + b"}", ("config.json", "nested too deep")),
    ],
    ids=["empty", "truncated", "binary", "list", "10 MB", "NaN", "unknown kind", "deep"],
)
def test_model_file_that_is_no_model(written, content, parts):
    refused(run_command("plan", written("config.json", content), CLUSTER), *parts)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"hidden_size": -64}, "hidden_size"),
        ({"hidden_size": "wide"}, "hidden_size"),
        ({"num_hidden_layers": 0}, "layers"),
        ({"vocab_size": None}, "vocab"),
        ({"num_attention_heads": 0}, "head"),
        ({"hidden_size": 10**30}, "hidden_size"),
    ],
)
def test_model_field_that_cannot_be(written, changes, field):
    done = run_command("plan", written("config.json", {**CONFIG, **changes}), CLUSTER)
    refused(done, field)


def test_unknown_model_names_its_neighbours():
    refused(run_command("plan", "llama-3-8", CLUSTER), "llama-3-8b")


def test_unknown_device_names_its_neighbours():
    refused(run_command("plan", MODEL, "8xh100-sxm6-80gb"), "h100-sxm5-80gb")


@pytest.mark.parametrize(
    "form",
    [
        "0xh100-sxm5-80gb",
        "0x8xh100-sxm5-80gb",
        "8x",
        "x",
        "8xh100x",
        "",
        "h100",
        "12xh100",
        "8xa100",
    ],
)
def test_cluster_short_form_that_cannot_be(form):
    refused(run_command("plan", MODEL, form))


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"node_groups": [{**GROUP, "node_count": 0}]}, ("node_count", "0")),
        ({"levels": LEVELS}, ("levels.0.bandwidth_bytes_per_second", "-1")),
        ({"node_groups": []}, ("node_groups",)),
        ({"node_groups": [{**GROUP, "device": "abacus"}]}, ("abacus",)),
        ({"spare": 1}, ("spare",)),
    ],
    ids=["zero nodes", "negative bandwidth", "no groups", "unknown device", "unknown field"],
)
def test_cluster_field_that_cannot_be(written, changes, parts):
    path = written("cluster.json", {**CLUSTER_FIELDS, **changes})
    refused(run_command("plan", MODEL, path), *parts)


def test_yaml_bomb_does_not_explode(written):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    path = written("cluster.yaml", "\n".join(lines))
    refused(run_process("plan", MODEL, path), "aliases stand for more than 100,000 values")


@pytest.mark.parametrize(
    ("job", "parts"),
    [
        ("global_batch_size: 0\n", ("global_batch_size", "0")),
        ("sequence_length: .nan\n", ("sequence_length", "finite")),
        ("precision: bf17\n", ("precision", "bf17")),
        ("limits: [1]\n", ("limits",)),
        ("limits: {tensor_parallel_degree: {min: 4, max: 2}}\n", ("min 4 exceeds max 2",)),
        ("- 1\n", ("mapping",)),
        ("a: b: c\n", ("not valid YAML", "line 1")),
    ],
)
def test_job_that_cannot_be(written, job, parts):
    refused(run_command("plan", MODEL, CLUSTER, "--job", written("job.yaml", job)), *parts)


@pytest.mark.parametrize("degree", ["three", "0", "-1", "8..", "4..2", "1e3", "99999999"])
def test_degree_that_is_none(degree):
    done = run_command("plan", MODEL, CLUSTER, f"--tensor-parallel-degree={degree}")
    refused(done, "tensor")


def test_degree_that_divides_nothing_is_refused_in_an_estimate(written):
    strategy = written("s.json", {"tensor_parallel_degree": 3, "data_parallel_shard_degree": 2})
    done = run_command("estimate", MODEL, "6xh100-sxm5-80gb", "--strategy", strategy)
    refused(done, "tensor_parallel_degree", "3", "divide")


def test_degrees_that_leave_devices_unused_are_refused(written):
    strategy = written("s.json", {"tensor_parallel_degree": 2})
    done = run_command("estimate", MODEL, CLUSTER, "--strategy", strategy)
    refused(done, "8 devices", "product is 8")


def test_strategy_with_a_misspelt_key_is_refused(written):
    strategy = written("s.json", {"tensor_paralel_degree": 2})
    done = run_command("estimate", MODEL, CLUSTER, "--strategy", strategy)
    refused(done, "tensor_paralel_degree", "spelling")


def test_file_of_no_strategies_is_refused(written):
    done = run_command("estimate", MODEL, CLUSTER, "--strategies", written("s.jsonl", "\n\n"))
    refused(done, "holds no strategy")


def test_place_that_cannot_be_written_is_refused(tmp_path):
    done = run_command("plan", MODEL, CLUSTER, "--out", tmp_path / "absent" / "plan.json")
    refused(done, "--out", "cannot be written")


@pytest.mark.parametrize("name", ["compare", "verify", "run"])
def test_plan_commands_refuse_what_is_no_plan(written, name):
    path = written("plan.json", {"schema_version": 1})
    words = [path, path] if name == "compare" else [path]
    refused(run_command(name, *words), "is not a plan", "--out FILE")


@pytest.mark.parametrize("name", ["compare", "verify", "run"])
def test_plan_commands_refuse_an_infeasible_answer(written, name):
    path = written("plan.json", {"status": "infeasible"})
    words = [path, path] if name == "compare" else [path]
    refused(run_command(name, *words), "infeasible answer")


def test_one_plan_is_nothing_to_compare(written):
    path = written("plan.json", a_plan().to_json())
    refused(run_command("compare", path), "2 to 16 plans")


def test_plan_with_a_number_changed_does_not_verify(written):
    """The builder's plan claims a step of exactly 1 s: no cost model says so."""
    done = run_command("verify", written("plan.json", a_plan().to_json()))
    refused(done, "verification failed", exit_code=3)


def test_error_as_json_goes_to_stdout():
    done = run_process("plan", "absent/config.json", CLUSTER, "--json")
    fields = json.loads(done.stdout)
    assert fields["status"] == "error"
    assert fields["error"]["field"]
    assert fields["error"]["remedy"]
    assert done.stderr.startswith("error: ")
    assert done.exit_code == 1


def test_job_without_an_end():
    refused(run_command("plan", MODEL, CLUSTER, "--job", "/dev/zero"), "/dev/zero", "is not a file")


@pytest.mark.parametrize("words", [("export", "--to", "torchrun"), ("compare",)])
def test_a_plan_that_does_not_hold_is_neither_exported_nor_compared(written, words):
    path = written("plan.json", a_plan().to_json())
    command, *options = words
    done = run_command(command, path, *([path] if command == "compare" else []), *options)
    refused(done, "verification failed: plan plan-0123456789abcdef", exit_code=3)
