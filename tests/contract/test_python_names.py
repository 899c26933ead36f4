"""The module `meshwright`: its names, their types, and what importing it loads."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from mypy import api as mypy

import executor
import meshwright
from planner import planning
from planner.schema import plan as plans

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/python-api.md").read_text(encoding="utf-8")
USER = """
from pathlib import Path
import meshwright
from meshwright import Infeasible, Job, Plan, Session

def best(batch: int) -> Plan | Infeasible:
    model = meshwright.read_model("llama-3-8b")
    return meshwright.plan(model, meshwright.read_cluster("8xh100"), Job(global_batch_size=batch))

def begin() -> Session:
    return meshwright.start()

seconds: float = Plan.read(Path("plan.json")).prediction.step_seconds.p50
words: str = meshwright.__version__
wrong: int = meshwright.__version__
meshwright.plan("llama-3-8b")
meshwright.plans
"""

OPTIONS = """
[mypy]
strict = True
follow_imports = silent
error_summary = False
[mypy-torch.*,numpy.*,rich.*,httpx.*,transformers.*]
follow_imports = skip
"""


def home_of(name: str) -> object:
    """Return what the annotations say that a name is."""
    tree = ast.parse((ROOT / "meshwright/__init__.py").read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    homes = {
        alias.asname: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    return getattr(importlib.import_module(homes[name]), name)


def test_the_page_lists_every_name_and_no_other():
    table = PAGE.partition("## All names")[2]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    names = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(names) == sorted(meshwright.__all__)


@pytest.mark.parametrize("name", sorted(set(meshwright.__all__) - {"__version__"}))
def test_a_name_is_what_type_checkers_take_it_for(name):
    assert getattr(meshwright, name) is home_of(name)


def test_names_are_those_of_planner_and_executor():
    assert meshwright.plan is planning.plan
    assert meshwright.Plan is plans.Plan
    assert meshwright.start is executor.start
    assert meshwright.__version__ == version("meshwright")


def test_names_are_listed_and_others_are_not_there():
    assert set(dir(meshwright)) == set(meshwright.__all__)
    with pytest.raises(AttributeError, match="module 'meshwright' has no attribute 'plans'"):
        _ = meshwright.plans


@pytest.mark.slow
def test_importing_it_loads_nothing_and_planning_no_torch():
    program = (
        "import json, sys; import meshwright; first = sorted(sys.modules); meshwright.plan; "
        "meshwright.InputError; print(json.dumps([first, sorted(sys.modules)]))"
    )
    first, then = json.loads(run(sys.executable, "-c", program))
    ours = {name for name in first if name.split(".")[0] in {"planner", "executor", "api"}}
    heavy = {"torch", "numpy", "pydantic", "typer", "yaml", "httpx", "fastapi", "pulp", "highspy"}
    assert (ours, heavy & set(first)) == (set(), set())
    assert {"torch", "executor", "api", "pulp", "highspy"} & set(then) == set()


@pytest.mark.slow
def test_running_the_module_is_the_command():
    assert run(sys.executable, "-m", "meshwright", "--version").startswith("meshwright ")
    assert "Usage: meshwright" in run(sys.executable, "-m", "meshwright", "--help")


@pytest.mark.slow
def test_a_users_program_is_type_checked(tmp_path, monkeypatch):
    """Three lines of it are wrong: text for a number, arguments, and an unknown name."""
    (tmp_path / "program.py").write_text(USER, encoding="utf-8")
    (tmp_path / "mypy.ini").write_text(OPTIONS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MYPYPATH", str(ROOT))
    out, _, _ = mypy.run(["program.py"])
    wrong = re.findall(r"^program.py:(\d+): error: .*\[([\w-]+)\]$", out, re.MULTILINE)
    lines = USER.splitlines()
    assert {(lines[int(number) - 1], code) for number, code in wrong} == {
        ("wrong: int = meshwright.__version__", "assignment"),
        ('meshwright.plan("llama-3-8b")', "call-arg"),
        ('meshwright.plan("llama-3-8b")', "arg-type"),
        ("meshwright.plans", "attr-defined"),
    }, out


def run(*command: str) -> str:
    """Return what a command prints, run in a process of its own."""
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    return done.stdout
