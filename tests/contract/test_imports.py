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
PROGRAM = """
import importlib, json, sys, time
start = time.perf_counter()
importlib.import_module(sys.argv[1])
seconds = time.perf_counter() - start
loaded = sorted({name.partition(".")[0] for name in sys.modules})
print(json.dumps({"seconds": seconds, "loaded": loaded}))
"""


@cache
def imported(module: str) -> tuple[float, frozenset[str]]:
    """Return how long a fresh interpreter imported `module`, and the packages that it loaded."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, module],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    found = json.loads(done.stdout)
    return found["seconds"], frozenset(found["loaded"])


def test_the_planner_has_modules_to_import():
    assert {"planner.units", "planner.schema.plan", "planner.cli.app"} <= set(MODULES)


@pytest.mark.parametrize("module", MODULES)
def test_planner_module_loads_neither_torch_nor_web_nor_database(module, record_property):
    seconds, loaded = imported(module)
    record_property("import_seconds", seconds)
    assert loaded & FORBIDDEN == set()


@pytest.mark.parametrize("module", MODULES)
def test_planner_module_loads_no_solver_before_it_solves(module):
    """PuLP and HiGHS are loaded by the solver module when it first solves, and by nothing else."""
    _, loaded = imported(module)
    assert loaded & SOLVERS == set()


def test_command_line_loads_neither_numpy_nor_pydantic_for_its_help():
    _, loaded = imported("planner.cli.app")
    assert loaded & {"numpy", "pydantic", "yaml"} == set()
