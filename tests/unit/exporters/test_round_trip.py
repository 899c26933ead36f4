"""Round trip: what an export says is what importing it gives, over many random plans."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from planner.errors import InputError
from planner.exporters.canonical import canonical
from planner.exporters.registry import export
from planner.importers.training.config import Setting
from planner.importers.training.files import strategy_from
from tests.unit.exporters.plans import plan_of, resolved_model
from tests.unit.exporters.strategies import BATCH, DEVICES, random_strategy

LEAST_EXPRESSED = {
    "torchtitan": 60,
    "torchtitan-0.2": 60,
    "megatron-lm": 40,
    "megatron-bridge": 40,
    "deepspeed": 12,
    "accelerate": 16,
    "hf-trainer": 16,
    "axolotl": 16,
    "axolotl-deepspeed": 8,
    "llama-factory": 8,
    "lightning-trainer": 8,
    "nemo": 30,
    "verl": 8,
    "verl-megatron": 30,
    "nemo-rl": 16,
    "nemo-rl-megatron": 30,
    "nanotron": 8,
    "maxtext": 8,
}
PLANS = 240


def imported(made, plan, folder):
    """The strategy that the export's files give, spelled out."""
    graph = plan.model.resolved
    for file in made.files:
        (folder / file.name).write_text(file.text)
    setting = Setting(graph=graph, device_count=DEVICES)
    found = strategy_from(folder / made.files[0].name, setting)
    whole = found.strategy.resolved(block_count=graph.block_count, global_batch_size=BATCH)
    return found, canonical(whole)


def exported(plan, target):
    """The export, or None where the target refuses the plan."""
    try:
        return export(plan, target)
    except InputError:
        return None


@pytest.mark.parametrize(("model", "experts"), [("llama-3-8b", 1), ("mixtral-8x7b", 8)])
@pytest.mark.parametrize("target", LEAST_EXPRESSED)
def test_importing_an_export_gives_its_strategy(target, model, experts, tmp_path):
    rng = random.Random(20261121)  # noqa: S311
    seen: Counter[str] = Counter()
    blocks = resolved_model(model).resolved.block_count
    for _ in range(PLANS):
        strategy = random_strategy(rng, block_count=blocks, experts=experts)
        plan = plan_of(
            strategy, model=model, cluster="2x8xh100-sxm5-80gb", batch=BATCH, sequence=8192
        )
        made = exported(plan, target)
        if made is None:
            continue
        seen["expressed"] += 1
        found, whole = imported(made, plan, tmp_path)
        assert whole == canonical(made.strategy)
        assert found.job["global_batch_size"] == BATCH
        if not made.losses:
            # of one micro-batch ZeRO 1 is ZeRO 2, in layers and ends
            own = canonical(plan.strategy)
            layers = {"stages": None, "embedding": None, "head": None}
            assert whole.model_copy(update=layers) == own.model_copy(update=layers)
    assert seen["expressed"] >= LEAST_EXPRESSED[target] // (2 if experts > 1 else 1)
