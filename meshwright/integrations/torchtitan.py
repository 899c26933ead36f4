"""torchtitan: a configuration of its Trainer with a plan's parallelism and batch.

    def planned_8b() -> Trainer.Config:
        return planned(llama3_8b(), "plan.json")

is a function for `--config planned_8b`, in a module for `--module`. Model, data and optimizer stay
the configuration's own.
"""

# ruff: noqa: E402 - what is not installed is named before anything imports it

from __future__ import annotations

from planner.extras import check_extras

check_extras(__name__, __name__)

from dataclasses import replace
from pathlib import Path
from typing import Any

from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC

from meshwright.integrations.foreign_run import ForeignRun, check_same, read_plan, say
from planner.exporters.draft import Draft
from planner.exporters.torchtitan import (
    checkpointing_of,
    parallelism_fields,
    training_with_graphs,
)
from planner.exporters.torchtitan_settled import settled_for_torchtitan
from planner.schema.plan import Plan
from planner.schema.strategy import ActivationCheckpointing

_CHECKPOINTING = {
    ActivationCheckpointing.SELECTIVE: SelectiveAC.Config,
    ActivationCheckpointing.FULL: FullAC.Config,
}


def planned(config: Any, plan: Plan | str | Path) -> Any:
    """Return the `Trainer.Config`, in which the plan's parallelism and batch are set.

    It prints what torchtitan does otherwise than planned.

    Raises:
        InputError: if torchtitan cannot run the plan, or the model is not the planned one.
    """
    draft = settled_for_torchtitan(read_plan(plan), "torchtitan", legacy=False)
    _check_model(config.model_spec.model, draft)
    kept = _CHECKPOINTING.get(checkpointing_of(draft.strategy))
    config.training = replace(config.training, **training_with_graphs(draft))
    config.parallelism = replace(config.parallelism, **parallelism_fields(draft, legacy=False))
    config.activation_checkpoint = None if kept is None else kept()
    for line in ForeignRun(draft).first_lines():
        say(line)
    return config


def _check_model(model: Any, draft: Draft) -> None:
    """Return if the model has the planned sizes."""
    graph = draft.plan.model.resolved
    for name, found, expected in (
        ("dim", model.dim, graph.hidden_size),
        ("layers", len(model.layers), graph.block_count),
        ("vocab_size", model.vocab_size, graph.vocabulary_size),
    ):
        check_same(f"model.{name}", found=found, planned=expected)
