"""`meshwright validate` as a person and as a program use it."""

from __future__ import annotations

import json

from planner.cli.validate import KeyName
from planner.validation.subsets import KEYS
from tests.measured_rows import KORTHIKANTI, MIXTURE, TORCHTITAN


def test_the_command_offers_every_key():
    assert {key.value for key in KeyName} == set(KEYS)


def test_the_command_prints_tables_and_writes_rows(command, tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text("\n".join(map(json.dumps, [TORCHTITAN, KORTHIKANTI, MIXTURE])))
    done = command("validate", path, "--by", "device", "--rows", tmp_path / "rows.jsonl")
    assert done.exit_code == 0
    assert "3 of 3 runs priced" in done.stdout
    assert "a100-sxm4-80gb" in done.stdout
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert rows[1]["step_seconds"]["measured"] == 18.13
    assert "step_seconds" not in rows[2]


def test_the_command_prints_one_document(command, tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text(json.dumps(TORCHTITAN))
    fields = command("validate", path, "--json").fields
    assert (fields["run_count"], fields["priced_count"]) == (1, 1)


def test_keys_that_the_format_does_not_have_are_named_with_what_may_be_meant(command, tmp_path):
    """`peak_mem_gb` is spelt like `peak_mem_gib`, which the second row states itself."""
    rows = [
        {**TORCHTITAN, "norm_kernle": "fused", "flags": [], "mfu": 0.4},
        {**TORCHTITAN, "norm_kernle": "fused", "peak_mem_gib": 40.0, "peak_mem_gb": 40.0},
        {**TORCHTITAN, "peak_mem_gb": "forty", "mbs": "many", "mfu": None},
    ]
    path = tmp_path / "runs.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    told = command("validate", path, "--json").fields["unread"]
    assert {one["name"]: (one["run_count"], one["examples"]) for one in told} == {
        "norm_kernle": (2, ["norm_kernel"]),
        "peak_mem_gb": (2, ["peak_mem_gib"]),
        "mfu": (1, []),
    }
    printed = " ".join(command("validate", path).stdout.split())
    assert "norm_kernle of 2 runs is not read; use norm_kernel?" in printed
    assert "not read: mfu" in printed


def test_a_file_without_a_price_is_a_negative_answer(command, tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text(json.dumps({**TORCHTITAN, "precision": "nvfp4"}))
    assert command("validate", path).exit_code == 3


def test_a_bad_line_is_one_message(command, tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text(json.dumps(TORCHTITAN) + '\n{"gpu": "T4"\n')
    done = command("validate", path)
    assert done.exit_code == 1
    assert "line 2: is not valid JSON" in done.stderr
    assert done.stderr.count("\n") == 1
