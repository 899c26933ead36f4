"""Megatron-Bridge's own overriding takes every override, for a recipe of its own fields.

Its package cannot be imported without CUDA (Transformer Engine, Apex), but the module that parses
and applies overrides can be, by itself. The recipe that it is given is made of the fields of its
dataclasses, whose own types are not checked.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib.util

import pytest
import yaml

from tests.exports.conftest import imports_again, needed, unpacked

needed("hydra")


def fields_of(folder, *classes: str) -> set[str]:
    """The annotated fields of the classes, wherever in the folder they are defined."""
    found: set[str] = set()
    for path in folder.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if not any(f"class {name}" in text for name in classes):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef) and node.name in classes:
                found |= {
                    item.target.id
                    for item in node.body
                    if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
                }
    return found


@pytest.fixture(scope="module")
def sections():
    """The fields of each section of a recipe."""
    core = unpacked("megatron-core") / "megatron/core"
    bridge = unpacked("megatron-bridge") / "megatron/bridge"
    model = fields_of(core, "TransformerConfig", "ModelParallelConfig")
    return {
        "model": model | fields_of(bridge / "models", "GPTModelProvider"),
        "train": fields_of(bridge / "training", "TrainingConfig"),
        "ddp": fields_of(core, "DistributedDataParallelConfig"),
        "optimizer": fields_of(core, "OptimizerConfig"),
        "checkpoint": fields_of(bridge / "training", "CheckpointConfig"),
    }


@pytest.fixture
def recipe(sections):
    """A recipe that says nothing yet: every field of every section is None."""

    def nothing(name: str, fields: set[str]):
        return dataclasses.make_dataclass(name, [(f, object, None) for f in sorted(fields)])()

    parts = {name: nothing(name, fields) for name, fields in sections.items()}
    return dataclasses.make_dataclass("Recipe", list(parts))(**parts)


@pytest.fixture(scope="module")
def overriding():
    """Megatron-Bridge's module for overrides."""
    path = unpacked("megatron-bridge") / "megatron/bridge/training/utils/omegaconf_utils.py"
    spec = importlib.util.spec_from_file_location("omegaconf_utils_of_bridge", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_override_is_taken_and_says_what_was_meant(overriding, recipe, exports_to):
    for made, plan in exports_to("megatron-bridge", count=12):
        lines = made.files[0].text.splitlines()
        said = overriding.process_config_with_overrides(recipe, cli_overrides=lines)
        for line in lines:
            name, _, value = line.partition("=")
            section, field = name.split(".")
            assert getattr(getattr(said, section), field) == yaml.safe_load(value), line
        strategy = made.strategy
        assert said.model.tensor_model_parallel_size == strategy.tensor_parallel_degree
        assert said.model.pipeline_model_parallel_size == strategy.pipeline_parallel_degree
        assert said.model.sequence_parallel is strategy.sequence_parallel
        assert said.train.micro_batch_size == strategy.micro_batch_size
        assert imports_again(made, plan, "")


@pytest.mark.parametrize("line", ["model.tensor_parallel_size=2", "training.seed=1", "model.x=[1"])
def test_what_no_recipe_has_is_refused_by_it(overriding, recipe, line):
    with pytest.raises(overriding.OverridesError):
        overriding.process_config_with_overrides(recipe, cli_overrides=[line])
