"""Peers: a row without a checkout is skipped, and one that cannot run says what to do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import peers

SCHEMA = """
class Fields:
    pass

class GalvatronSearchArgs:
    def __init__(self, **fields):
        self.hardware_info, self.batch_size_info = Fields(), Fields()
        self.common_train_info = Fields()
        self.folder = fields["options_info"]["output_config_path"]
"""
ENGINE = """
from galvatron.core.runtime import args_schema

class GalvatronSearchEngine:
    def __init__(self, arguments):
        self.arguments = arguments
    def set_search_engine_info(self, path, model_layer_configs, model_name):
        pass
    def initialize_search_engine(self):
        print("profiles")
    def parallelism_optimization(self):
        if self.arguments.hardware_info.memory_constraint < 2:
            return -1
        with open(self.arguments.folder + "/found.json", "w") as file:
            file.write('{"pp_deg": 4}')
        return 12.5
"""
ADAPTER = """
def resolve_model_config(arguments): pass
def model_layer_configs(arguments): return []
def model_name(arguments): return "llama2-7b"
"""

TORCH = """
import sys
from unittest.mock import MagicMock

for name in (
    "distributed",
    "distributed.device_mesh",
    "distributed.fsdp",
    "distributed.tensor",
    "distributed.tensor.experimental",
    "testing._internal.distributed.fake_pg",
    "utils.flop_counter",
):
    sys.modules["torch." + name] = MagicMock()
bfloat16 = float32 = ops = randint = MagicMock()
device = MagicMock()
cpu = MagicMock()

def get_device_module():
    return cpu
"""
AUTOPARALLEL = """
from types import SimpleNamespace
import torch

class Program:
    status = 1
    objective = SimpleNamespace(value=lambda: 2.5e6)
    def numVariables(self): return 7
    def numConstraints(self): return 5

class AutoParallel:
    def __init__(self, model, input_fn, mesh, policy, cost_model, repeated_subgraphs):
        assert torch.cpu.get_device_name() == "H100"
        self.sharding_optimizer = SimpleNamespace(prob=Program())
    def build_model_graph(self):
        print("tracing")
    def __enter__(self):
        self.build_model_graph()
        return self
    def __exit__(self, *error): pass
    def add_parameter_memory_constraint(self, low, high): pass
    def add_input_constraints(self, placements):
        assert len(placements[0]) == 1
    def add_output_constraints(self, placements):
        assert len(placements[0]) == 1
    def optimize_placement(self):
        print("solving")
"""
LLAMA = """
class TransformerModelArgs:
    def __init__(self, **fields): pass

class Transformer:
    def __init__(self, fields): pass
"""


def _fake_autoparallel(folder: Path) -> Path:
    """Write what the driver calls, with a torch of mocks before the installed one."""
    package = folder / "autoparallel"
    for path, text in {
        folder / "torch" / "__init__.py": TORCH,
        package / "__init__.py": "",
        package / "api.py": AUTOPARALLEL,
        package / "_testing" / "models" / "llama3.py": LLAMA,
        package / "cost_models" / "nccl_cost_model.py": "def h100_topo_config(): pass",
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def _fake_galvatron(folder: Path) -> Path:
    """Write what the driver calls, with a runtime that cannot be imported."""
    package = folder / "galvatron"
    for path, text in {
        folder / "galvatron_dp_core.py": "",
        package / "__init__.py": "",
        package / "core" / "__init__.py": "",
        package / "core" / "runtime" / "__init__.py": "import no_triton_here",
        package / "core" / "runtime" / "args_schema.py": "",
        package / "core" / "search_engine" / "args_schema.py": SCHEMA,
        package / "core" / "search_engine" / "search_engine.py": ENGINE,
        package / "utils" / "hf_config_adapter.py": ADAPTER,
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def _driven(checkout: Path, memory_gib: str) -> dict[str, object]:
    command = [sys.executable, str(peers.GALVATRON_DRIVER), str(checkout)]
    done = subprocess.run(
        [*command, "8", "64", "2048", memory_gib],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_a_peer_without_a_checkout_is_skipped() -> None:
    for row in (
        peers.beside_calculon(None, None, offload=False),
        peers.beside_sailor(None, None),
        peers.beside_galvatron(None, None),
        peers.beside_autoparallel(None, None),
    ):
        assert row.skipped
        assert row.note.startswith("skipped: give --")


def test_a_folder_that_is_not_galvatron_is_named(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"is missing: is .* a checkout of Galvatron\?"):
        peers._galvatron(str(tmp_path), sys.executable)


def test_galvatron_without_its_core_says_how_to_build_it(tmp_path: Path) -> None:
    (_fake_galvatron(tmp_path) / "galvatron_dp_core.py").unlink()
    with pytest.raises(RuntimeError, match=r"setup.py build_ext --inplace` in "):
        peers._galvatron(str(tmp_path), sys.executable)


def test_galvatron_answers_without_what_its_training_imports(tmp_path: Path) -> None:
    found = _driven(_fake_galvatron(tmp_path), "24")
    assert found["samples_per_second"] == 12.5
    assert found["strategy"] == {"pp_deg": 4}


def test_galvatrons_rate_stands_in_the_note(tmp_path: Path) -> None:
    _, note = peers._galvatron(str(_fake_galvatron(tmp_path)), sys.executable)
    assert note.startswith("Galvatron answers 12.5 sequences/s")


def test_galvatron_that_finds_nothing_has_no_rate(tmp_path: Path) -> None:
    found = _driven(_fake_galvatron(tmp_path), "1")
    assert found["samples_per_second"] is None
    assert found["strategy"] is None


def test_a_folder_that_is_not_autoparallel_is_named(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"is missing: is it a checkout of AutoParallel\?"):
        peers._autoparallel(str(tmp_path), sys.executable)


def test_autoparallel_without_what_it_imports_says_what_to_install(tmp_path: Path) -> None:
    checkout = _fake_autoparallel(tmp_path)
    (checkout / "autoparallel" / "api.py").write_text("import no_pulp_here")
    with pytest.raises(RuntimeError, match=r"no_pulp_here.*install torch, numpy and pulp"):
        peers._autoparallel(str(checkout), sys.executable)


def test_autoparallels_program_stands_in_the_note(tmp_path: Path) -> None:
    seconds, note = peers._autoparallel(str(_fake_autoparallel(tmp_path)), sys.executable)
    assert 0.0 <= seconds < 60.0
    assert note.startswith(
        "AutoParallel solves one program of 7 variables, objective 2.500 s for 16 sequences"
    )
