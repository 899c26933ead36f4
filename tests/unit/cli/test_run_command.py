"""Run and serve: the words that the other processes are started with."""

import sys

import pytest

from planner.cli import run as run_module
from planner.cli.run import launcher_arguments
from tests.builders import a_plan


@pytest.fixture
def started(monkeypatch):
    """The command lines that this process would have become, and the environment's additions."""
    lines: list[list[str]] = []
    monkeypatch.setattr(run_module.os, "execv", lambda _, arguments: lines.append(arguments))
    return lines


@pytest.fixture
def plan_path(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(a_plan().to_json())
    return path


def test_plan_alone_is_enough(plan_path):
    assert launcher_arguments(plan_path, None, None, None) == [str(plan_path)]


def test_steps_report_and_script_are_handed_on_in_order(tmp_path, plan_path):
    arguments = launcher_arguments(plan_path, ["t.py", "--lr", "1"], 5, tmp_path / "r.json")
    assert arguments == [
        str(plan_path), "--report", str(tmp_path / "r.json"), "--steps", "5",
        "--", "t.py", "--lr", "1",
    ]  # fmt: skip


def test_run_becomes_the_launcher(command, started, plan_path):
    command("run", plan_path, "--steps", 3, "--", "train.py", "--steps", "9")
    assert started == [
        [sys.executable, "-m", "executor.launcher", str(plan_path), "--steps", "3",
         "--", "train.py", "--steps", "9"]
    ]  # fmt: skip


def test_limits_of_waiting_are_the_launchers(command, started, plan_path):
    limits = ["--timeout-seconds", "15", "--start-timeout-seconds", "90"]
    command("run", plan_path, *limits)
    assert started == [[sys.executable, "-m", "executor.launcher", *limits, str(plan_path)]]


def test_plan_is_read_before_anything_starts(command, started, tmp_path):
    assert command("run", tmp_path / "absent.json").exit_code == 1
    assert started == []


def test_trace_becomes_the_executors_trace(command, started, tmp_path):
    command("trace", "net.py:tiny", "--out", tmp_path / "g.json", "--blocks", "layers", "--json")
    assert started == [
        [sys.executable, "-m", "executor.trace_command", "--json", "net.py:tiny",
         "--out", str(tmp_path / "g.json"), "--blocks", "layers"]
    ]  # fmt: skip


def test_serve_becomes_the_service_with_its_settings(command, started, monkeypatch):
    for name in ("HOST", "PORT", "DATABASE_URL"):
        monkeypatch.setenv(f"MESHWRIGHT_{name}", "before")
    command("serve", "--port", 8123, "--database-url", "sqlite:///x.db")
    environment = {
        name: run_module.os.environ[f"MESHWRIGHT_{name}"]
        for name in ("HOST", "PORT", "DATABASE_URL")
    }
    assert environment == {"HOST": "before", "PORT": "8123", "DATABASE_URL": "sqlite:///x.db"}
    assert started == [[sys.executable, "-P", "-m", "api"]]
