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
        timeout=60,
    )
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_a_peer_without_a_checkout_is_skipped() -> None:
    for row in (
        peers.beside_calculon(None, None, offload=False),
        peers.beside_sailor(None, None),
        peers.beside_galvatron(None, None),
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
