"""Failures: one line on stderr, a stable exit code, JSON on request, never a traceback."""

import json

import pytest

from planner.cli import app as application
from planner.errors import InputError, SolverError, VerificationError


def failing(monkeypatch, error):
    """Make every command line fail with `error`, as if a command had raised it."""

    def raise_it(**_):
        raise error

    monkeypatch.setattr(application, "app", raise_it)


BAD_INPUT = InputError("must be positive", field="levels.0", value=-1, remedy="write a bandwidth")


def test_user_error_is_one_line_with_field_value_and_remedy(command, monkeypatch):
    failing(monkeypatch, BAD_INPUT)
    outcome = command("plan")
    assert outcome.stderr == "error: levels.0: must be positive (got -1); write a bandwidth\n"
    assert (outcome.exit_code, outcome.stdout) == (1, "")


def test_json_error_has_the_same_parts(command, monkeypatch):
    failing(monkeypatch, BAD_INPUT)
    fields = command("plan", "--json").fields
    assert (fields["status"], fields["exit_code"]) == ("error", 1)
    assert fields["error"] == {
        "kind": "InputError",
        "field": "levels.0",
        "value": "-1",
        "problem": "must be positive",
        "remedy": "write a bandwidth",
        "message": "levels.0: must be positive (got -1); write a bandwidth",
    }


def test_json_of_the_training_script_is_not_ours(command, monkeypatch):
    failing(monkeypatch, BAD_INPUT)
    assert command("run", "plan.json", "--", "train.py", "--json").stdout == ""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (SolverError("the solver died"), (1, "the solver died")),
        (VerificationError("step differs"), (3, "verification failed: step differs")),
        (PermissionError(13, "Permission denied", "x.json"), (1, "x.json: Permission denied")),
        (RuntimeError("a\nb"), (1, "unexpected RuntimeError: a b; this is a bug in meshwright")),
        (MemoryError(), (1, "unexpected MemoryError: no message")),
        (RecursionError("deep"), (1, "MESHWRIGHT_DEBUG=1")),
    ],
)
def test_each_kind_of_failure_has_its_line_and_exit_code(command, monkeypatch, error, expected):
    failing(monkeypatch, error)
    outcome = command("plan")
    assert expected[1] in outcome.stderr
    assert outcome.stderr.count("\n") == 1
    assert outcome.exit_code == expected[0]


def test_traceback_is_shown_only_on_request(command, monkeypatch):
    failing(monkeypatch, RuntimeError("boom"))
    assert "Traceback" not in command("plan").stderr
    monkeypatch.setenv("MESHWRIGHT_DEBUG", "1")
    assert "Traceback" in command("plan").stderr


def test_interrupt_ends_with_130_and_a_word(command, monkeypatch):
    failing(monkeypatch, KeyboardInterrupt())
    outcome = command("plan")
    assert (outcome.exit_code, outcome.stderr) == (130, "interrupted\n")


def test_reader_that_goes_away_is_no_error_message(command, monkeypatch):
    failing(monkeypatch, BrokenPipeError())
    monkeypatch.setattr(application.os, "dup2", lambda *_: None)
    assert command("models").stderr == ""


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["fly"], "No such command 'fly'"),
        (["plan"], "Missing argument 'MODEL'"),
        (["plan", "m", "c", "--speed", "9"], "No such option: --speed"),
        (
            ["plan", "--model", "m"],
            "MODEL is written without --model: `meshwright plan MODEL CLUSTER`",
        ),
        (["plan", "m", "--cluster=c"], "`meshwright plan MODEL CLUSTER`"),
        (["plan", "m", "c", "--precision", "bf17"], "'bf16', 'fp16', 'fp32', 'fp8'"),
        (["plan", "m", "c", "--global-batch-size", "many"], "'--global-batch-size'"),
        (["run", "p.json", "--steps", "0"], "'--steps'"),
        (["serve", "--port", "65536"], "'--port'"),
        (["estimate", "m", "c"], "give exactly one of --strategy and --strategies"),
        (["estimate", "m", "c", "--strategy", "a", "--strategies", "b"], "give exactly one"),
    ],
)
def test_wrong_usage_exits_with_2_and_points_to_the_help(command, words, text):
    outcome = command(*words)
    assert outcome.exit_code == 2
    assert text in outcome.stderr
    assert outcome.stderr.startswith("error: ")
    assert outcome.stderr.endswith("--help`\n")


def test_wrong_usage_is_json_too(command):
    fields = command("plan", "--json").fields
    assert fields["exit_code"] == 2
    assert "Missing argument" in fields["error"]["message"]


def test_json_error_is_one_line(command):
    assert json.loads(command("compare", "absent", "--json").stdout.splitlines()[0])


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        (
            "--global-batch-size",
            "abc",
            "is not a whole number (got abc); write a whole number; see",
        ),
        (
            "--precision",
            "bf17",
            "'--precision': 'bf17' is not one of 'bf16', 'fp16', 'fp32', 'fp8'",
        ),
    ],
)
def test_a_refused_option_says_what_it_was_given(command, option, value, expected):
    outcome = command("plan", "llama-3-8b", "8xh100-sxm5-80gb", option, value)
    assert outcome.exit_code == 2
    assert expected in outcome.stderr
