"""Extras that are not installed: every command and entry point that needs one names it.

What the extras bring is made unimportable in a fresh interpreter. `tests/wheel/smoke.py` asks the
bare wheel the same.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import typer

from planner.cli.app import app
from planner.extras import NEEDS
from tests.builders import a_plan
from tests.calibration_rows import TRUTH, measured_fields
from tests.command_walk import ALONE, EXECUTOR, MODULES, NEEDY

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# Hides the packages that it is given, and runs calls as far as they go: their status and streams.
PROGRAM = """
import contextlib, io, json, runpy, sys
request = json.loads(sys.argv[1])
sys.modules.update(dict.fromkeys(request["hidden"]))
from planner.cli.app import invoke

def module(name):
    sys.argv = [name]
    try:
        runpy.run_module(name, run_name="__main__")
    except SystemExit as stop:
        if isinstance(stop.code, int):
            return stop.code
        print(stop.code, file=sys.stderr)
        return 1

def attribute(name):
    import meshwright
    try:
        getattr(meshwright, name)
    except ImportError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1

done = {}
for kind, name, arguments in request["calls"]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        if kind == "command":
            status = invoke([*name.split(), *arguments])
        else:
            status = {"module": module, "attribute": attribute}[kind](name)
    done[name] = [status, out.getvalue(), err.getvalue()]
print(json.dumps(done))
"""


@cache
def brought_by_extras() -> set[str]:
    """Return the names by which what service and executor bring is imported."""
    own = {word.split(">")[0].split("[")[0].lower() for word in PROJECT["dependencies"]}
    words = [word for name in ("service", "executor") for word in extras_of(name)]
    wanted = {word.split(">")[0].split("[")[0].lower() for word in words} - own
    installed = packages_distributions()
    names = {
        package
        for package, distributions in installed.items()
        if {name.lower().replace("_", "-") for name in distributions} & wanted
    }
    assert len(names) >= len(wanted)
    return names


def extras_of(name: str) -> list[str]:
    """Return the requirements of an extra."""
    return PROJECT["optional-dependencies"][name]


def run_without(calls: list[tuple[str, str, list[str]]], folder: Path) -> dict[str, list]:
    """Return status and streams of each call where nothing can be imported that an extra brings."""
    request = {"hidden": sorted(brought_by_extras()), "calls": calls}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(request)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def leaves(commands, prefix=""):
    """Yield the name of each command that runs something."""
    for name, command in commands.items():
        inner = getattr(command, "commands", None)
        if inner:
            yield from leaves(inner, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}"


def test_every_command_is_run_here():
    known = set(leaves(typer.main.get_group(app).commands))
    assert set(NEEDY) | set(ALONE) == known
    assert set(NEEDY) & set(ALONE) == set()


@pytest.mark.slow
def test_commands_name_the_extras_that_they_lack(tmp_path):
    (tmp_path / "plan.json").write_text(a_plan().to_json(), encoding="utf-8")
    calls = [("command", name, arguments) for name, (arguments, _) in NEEDY.items()]
    done = run_without(calls, tmp_path)
    assert done == {
        name: [1, "", f"error: meshwright {name}: {said}\n"] for name, (_, said) in NEEDY.items()
    }
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


@pytest.mark.slow
def test_missing_extra_is_one_document_where_json_is_asked_for(tmp_path):
    status, out, _ = run_without([("command", "demo", ["--json"])], tmp_path)["demo"]
    fields = json.loads(out)
    assert fields["exit_code"] == status == 1
    assert fields["error"]["kind"] == "MissingExtraError"
    assert fields["error"]["remedy"] == "run: pip install 'meshwright[service,executor]'"


@pytest.mark.slow
def test_entry_points_name_the_extra_that_they_lack(tmp_path):
    done = run_without([("module", name, []) for name in MODULES], tmp_path)
    assert done == {
        name: [1, "", f"error: python -m {name}: {said}\n"] for name, said in MODULES.items()
    }


def test_every_entry_point_for_people_is_run_here():
    """Those of the agent and of ranks are started by others, and need no more than these."""
    started_by_others = {"executor.agent.keeper", "executor.agent.slurm_task", "executor.rank_main"}
    found = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")
        for package in ("api", "executor")
        for path in (ROOT / package).rglob("*.py")
        if '\nif __name__ == "__main__":' in path.read_text(encoding="utf-8")
    }
    assert found == set(MODULES) | started_by_others


@pytest.mark.slow
def test_names_of_the_executor_say_which_extra_they_need(tmp_path):
    names = ["start", "trace", "Declaration"]
    done = run_without([("attribute", name, []) for name in names], tmp_path)
    assert done == {name: [1, "", f"error: meshwright.{name}: {EXECUTOR}\n"] for name in names}


@pytest.mark.slow
def test_all_other_commands_work_with_the_planner_alone(tmp_path):
    """In this order: later ones read the plan that the first one wrote."""
    (tmp_path / "runs.jsonl").write_text(runs_text(), encoding="utf-8")
    calls = [("command", name, arguments) for name, arguments in ALONE.items()]
    done = run_without(calls, tmp_path)
    for name, (status, out, err) in done.items():
        assert status == 0, f"{name}: {err}"
        assert out.strip(), name
    assert "GPUs were not looked for, which takes `pip install 'meshwright" in done["discover"][1]


def runs_text() -> str:
    """Return runs in which the device does what is known of it, a line each."""
    return "\n".join(map(json.dumps, measured_fields(TRUTH, noise=0.03)))


def test_service_needs_all_that_its_modules_import():
    """What is looked for is what would be missed, so that nothing is left to a failing import."""
    extra, packages = NEEDS["api"]
    assert extra == "service"
    brought = brought_by_extras()
    imported = {name for path in (ROOT / "api").rglob("*.py") for name in top_imports(path)}
    assert (imported & brought) - set(packages) == set()


def top_imports(path: Path) -> set[str]:
    """Return the packages that a module imports when it is loaded."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return names
