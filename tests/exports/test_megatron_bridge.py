"""Every override names a field of the dataclasses that Megatron-Bridge's recipes are made of."""

from __future__ import annotations

import ast

import pytest

from tests.exports.conftest import imports_again, unpacked


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
def known():
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


def test_overrides_name_fields_of_recipes(known, exports_to):
    for made, plan in exports_to("megatron-bridge", count=12):
        for line in made.files[0].text.splitlines():
            section, _, rest = line.partition(".")
            assert rest.partition("=")[0] in known[section], line
        assert imports_again(made, plan, "")
