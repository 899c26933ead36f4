"""Plans whose exports the frameworks' own parsers read, and where unpacked frameworks lie."""

from __future__ import annotations

import importlib
import os
import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pytest

from planner.errors import InputError
from planner.exporters.canonical import canonical
from planner.exporters.registry import export
from planner.importers.training.config import Setting
from planner.importers.training.files import config_from_text
from tests.unit.exporters.plans import plan_of
from tests.unit.exporters.strategies import BATCH, random_strategy

MODELS = (("llama-3-8b", 1), ("mixtral-8x7b", 8))
UNPACKED = Path(sys.prefix) / "unpacked"
ROOT = Path(__file__).parents[2]


def missing(name: str) -> NoReturn:
    """Skip what needs a framework that is not there; in its own environment this is a failure."""
    if UNPACKED.is_dir():
        pytest.fail(f"{name} is missing in {sys.prefix}")
    pytest.skip(f"needs {name}", allow_module_level=True)


def needed(name: str) -> ModuleType:
    """The module of a framework."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        missing(f"a framework, {name}")


def unpacked(name: str) -> Path:
    """The folder of an unpacked framework."""
    folder = UNPACKED / name
    if not folder.is_dir():
        missing(f"a framework, {name}")
    return folder


def ran_on_ranks(ranks: int, *program: str, **variables: str) -> None:
    """Have torchrun start a program on ranks, which must end well."""
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks))
    done = subprocess.run(
        [sys.executable, *torchrun, *program],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.fixture
def exports_to():
    """Exports of random plans to a target, with their plans."""

    def made(target: str, *, count: int, models=MODELS):
        found = []
        for model, experts in models:
            rng = random.Random(20261121)  # noqa: S311
            tried, wanted = 0, len(found) + count
            while len(found) < wanted and tried < 40 * count:
                tried += 1
                strategy = random_strategy(rng, block_count=32, experts=experts)
                plan = plan_of(strategy, model=model, cluster="2x8xh100-sxm5-80gb", batch=BATCH)
                try:
                    found.append((export(plan, target), plan))
                except InputError:
                    continue
        assert len(found) >= count
        return found

    return made


def imports_again(made, plan, suffix: str) -> bool:
    """Whether importing the file gives the strategy that the export says."""
    graph = plan.model.resolved
    setting = Setting(graph=graph, device_count=plan.strategy.world_size)
    found = config_from_text(made.files[0].text, setting, source=made.files[0].name, suffix=suffix)
    batch = plan.job.resolved.global_batch_size
    whole = found.strategy.resolved(block_count=graph.block_count, global_batch_size=batch)
    return canonical(whole) == canonical(made.strategy)
