"""The frozen surface: every option is here, so that one more is a decision and not an accident."""

import pytest
import typer

from planner.cli.app import app
from planner.cli.options import FrameworkName, OptimizerName, PrecisionName, StackName
from planner.schema.job import Framework, Job, Optimizer, Precision, Stack

JOB_OPTIONS = {
    "--job", "--global-batch-size", "--sequence-length", "--precision", "--optimizer", "--stack",
    "--calibration", "--set",
}  # fmt: skip
SURFACE = {
    "plan": JOB_OPTIONS
    | {
        "--framework",
        "--objective",
        "--tensor-parallel-degree",
        "--pipeline-parallel-degree",
        "--data-parallel-shard-degree",
        "--data-parallel-replicate-degree",
        "--expert-parallel-degree",
        "--micro-batch-size",
        "--memory-headroom-ratio",
        "--fits-probability",
        "--fastest",
        "--certificate-out",
        "--solver-seconds",
        "--out",
        "--dask",
        "--json",
    },
    "estimate": JOB_OPTIONS
    | {"--strategy", "--strategies", "--fits-probability", "--dask", "--json"},
    "explain": {"--why-not", "--heatmap", "--axes", "--solver-seconds", "--dask", "--json"},
    "frontier": JOB_OPTIONS
    | {
        "--framework",
        "--points",
        "--alternatives",
        "--fits-probability",
        "--fastest",
        "--solver-seconds",
        "--dask",
        "--json",
    },
    "size": JOB_OPTIONS
    | {
        "--framework",
        "--device",
        "--tokens",
        "--days",
        "--budget",
        "--cheapest",
        "--fewest",
        "--devices-per-node",
        "--max-devices",
        "--fits-probability",
        "--fastest",
        "--solver-seconds",
        "--dask",
        "--json",
    },
    "check": JOB_OPTIONS
    | {"--baseline", "--max-slowdown", "--junit", "--fits-probability", "--json"},
    "compare": {"--json"},
    "compare-frameworks": {"--solver-seconds", "--dask", "--json"},
    "export": {"--to", "--job-of", "--out", "--json"},
    "verify": {"--certificate", "--json"},
    "validate": {"--by", "--rows", "--calibration", "--json"},
    "calibrate": {"--out", "--device", "--stack", "--json"},
    "run": {
        "--steps",
        "--report",
        "--runs",
        "--device",
        "--json",
        "--profile",
        "--timeout-seconds",
        "--start-timeout-seconds",
        "--on",
        "--command",
        "--argument",
        "--detach",
    },
    "tune": JOB_OPTIONS
    | {
        "--framework",
        "--runs",
        "--minutes",
        "--steps",
        "--trial-minutes",
        "--device",
        "--template",
        "--step-pattern",
        "--peak-pattern",
        "--on",
        "--command",
        "--argument",
        "--detach",
        "--out",
        "--plan-out",
        "--fits-probability",
        "--solver-seconds",
        "--json",
    },
    "discover": {
        "--out",
        "--from",
        "--format",
        "--device",
        "--nodes",
        "--devices-per-node",
        "--collective",
        "--json",
    },
    "profile": {"--out", "--ranks", "--device", "--seconds", "--json"},
    "trace": {
        "--transformers",
        "--class",
        "--sequence-length",
        "--out",
        "--blocks",
        "--name",
        "--json",
    },
    "serve": {"--host", "--port", "--database-url", "--json"},
    "agent": set(),
    "db": set(),
    "keys": set(),
    "audit": {"--project", "--action", "--limit", "--cursor", "--database-url", "--json"},
    "models": {"--json"},
    "devices": {"--json"},
    "demo": {
        "--keep-serving",
        "--no-keep-serving",
        "--directory",
        "--seconds",
        "--steps",
        "--profile",
        "--json",
    },
}


def commands() -> dict[str, typer.core.TyperCommand]:
    """Return the application's commands by name."""
    return dict(typer.main.get_group(app).commands)


def options_of(command: typer.core.TyperCommand) -> set[str]:
    """Return the long options of `command`."""
    written = [
        (*parameter.opts, *parameter.secondary_opts)
        for parameter in command.params
        if parameter.param_type_name == "option"
    ]
    return {name for names in written for name in names if name not in {"--help", "-h"}}


def test_commands_are_these():
    assert set(commands()) == set(SURFACE)


@pytest.mark.parametrize("name", sorted(SURFACE))
def test_options_of_each_command_are_these(name):
    assert options_of(commands()[name]) == SURFACE[name]


@pytest.mark.parametrize("name", sorted(SURFACE))
def test_every_command_says_what_it_does(name, command):
    outcome = command(name, "--help")
    assert outcome.exit_code == 0
    assert f"meshwright {name}" in outcome.stdout


@pytest.mark.parametrize(
    ("offered", "understood"),
    [
        (PrecisionName, Precision),
        (OptimizerName, Optimizer),
        (StackName, Stack),
        (FrameworkName, Framework),
    ],
)
def test_words_that_options_offer_are_those_of_the_job_document(offered, understood):
    assert set(offered.__args__) == {item.value for item in understood}


def test_job_options_are_fields_of_the_job_document():
    fields = {f"--{name.replace('_', '-')}" for name in Job.model_fields}
    assert JOB_OPTIONS - {"--job", "--set"} <= fields


@pytest.mark.parametrize(
    "name", ["plan", "estimate", "check", "explain", "frontier", "size", "tune"]
)
def test_help_shows_every_option_whole_at_a_hundred_columns(name, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    text = command(name, "--help").stdout
    assert {option for option in SURFACE[name] if f" {option} " not in text} == set()


@pytest.mark.parametrize(
    ("words", "enumeration"),
    [
        (PrecisionName, Precision),
        (OptimizerName, Optimizer),
        (StackName, Stack),
        (FrameworkName, Framework),
    ],
)
def test_help_names_the_words_that_an_option_takes(words, enumeration, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    text = command("plan", "--help").stdout
    assert {word for word in words.__args__ if word not in text} == set()
    assert len(words.__args__) == len(enumeration)


def test_version_is_printed(command):
    outcome = command("--version")
    assert (outcome.exit_code, outcome.stdout.split()[0]) == (0, "meshwright")


def test_no_arguments_show_the_help(command):
    outcome = command()
    assert outcome.exit_code == 2
    assert "Usage: meshwright" in outcome.stdout
    assert outcome.stderr == ""
