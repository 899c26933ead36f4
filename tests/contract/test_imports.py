"""Fresh interpreters: what each module of the planner loads, and what it must not."""

from __future__ import annotations

import json
import os
import pkgutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import planner

ROOT = Path(__file__).parents[2]
FORBIDDEN = {"torch", "fastapi", "sqlalchemy", "httpx", "starlette", "uvicorn", "transformers"}
SOLVERS = {"pulp", "highspy"}
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(planner.__path__, prefix="planner.")
    if not module.name.endswith("__main__")
)
TOGETHER = """
import importlib, json, sys
before = set(sys.modules)
for name in sys.argv[1:]:
    importlib.import_module(name)
    brought = {each.partition(".")[0] for each in set(sys.modules) - before}
    print(json.dumps([name, sorted(brought)]))
    before = set(sys.modules)
"""
# A process for each module, from one that has loaded what most of them need and may load.
EACH_ALONE = """
import importlib, os, sys
import numpy, pydantic, yaml
for name in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        importlib.import_module(name)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print(name)
"""
ONE = """
import importlib, json, os, sys
import numpy, pydantic, yaml
for name in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        importlib.import_module(name)
        loaded = sorted({each.partition(".")[0] for each in sys.modules})
        print(json.dumps([name, loaded]), flush=True)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit(f"{name} cannot be imported alone")
"""
ONE = """
import json, sys
import planner.cli.app
print(json.dumps(sorted({each.partition(".")[0] for each in sys.modules})))
"""


def said(program: str, *words: str) -> list[str]:
    """Return the lines that a program says in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@cache
def brought_by_module() -> dict[str, set[str]]:
    """Return the packages that each module was the first to bring into one interpreter."""
    return {name: set(packages) for name, packages in map(json.loads, said(TOGETHER, *MODULES))}


def test_the_planner_has_modules_to_import():
    assert {"planner.units", "planner.schema.plan", "planner.cli.app"} <= set(MODULES)
    assert sorted(brought_by_module()) == MODULES


def test_no_module_of_the_planner_loads_torch_or_web_or_database():
    found = {name: brought & FORBIDDEN for name, brought in brought_by_module().items()}
    assert {name: packages for name, packages in found.items() if packages} == {}


def test_no_module_of_the_planner_loads_a_solver_before_it_solves():
    """PuLP and HiGHS are loaded by the solver module when it first solves, and by nothing else."""
    found = {name: brought & SOLVERS for name, brought in brought_by_module().items()}
    assert {name: packages for name, packages in found.items() if packages} == {}


@pytest.mark.full
def test_every_module_of_the_planner_can_be_the_first_that_is_imported():
    assert said(EACH_ALONE, *MODULES) == []


def test_command_line_loads_neither_numpy_nor_pydantic_for_its_help():
    (line,) = said(ONE)
    assert set(json.loads(line)) & {"numpy", "pydantic", "yaml"} == set()
