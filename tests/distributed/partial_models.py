"""Modules of which not every parameter gets a gradient, and their plain runs."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from executor.apply.materialise import unsplit_name
from executor.models.own import Declaration
from executor.session import Session
from executor.trainer import Trainer
from planner.errors import InputError
from tests.distributed.own_models import (
    WIDTH,
    WORDS,
    Layer,
    Words,
    loss,
    parameter_error,
    plain_run,
)
from tests.distributed.plans import BLOCK_COUNT, cpu_plan, small_model
from tests.distributed.reference import SEED, STEP_COUNT, adamw, floats_differences, global_batches
from tests.distributed.state_tasks import everyone

CPU = torch.device("cpu")
EXPERTS = 12


def frozen_words(trained: Collection[str]) -> nn.Module:
    """Return the language model, of which only parameters that begin so are trained."""
    model = Words(BLOCK_COUNT)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.startswith(tuple(trained)))
    return model


class SwitchedLayer(Layer):
    """A layer with one norm more, for the rows that it is told alone."""

    def __init__(self) -> None:
        super().__init__()
        self.norm3 = nn.LayerNorm(WIDTH)

    def forward(self, hidden: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Return the layer's output."""
        hidden = super().forward(hidden)
        if rows.any():
            hidden = hidden + rows[:, None, None] * self.norm3(hidden)
        return hidden


class BranchingLayer(SwitchedLayer):
    """The same, with a branch that no row takes, and experts of which each token passes one."""

    def __init__(self) -> None:
        super().__init__()
        self.never = nn.Linear(WIDTH, WIDTH)
        self.router = nn.Linear(WIDTH, EXPERTS)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(EXPERTS))

    def forward(self, hidden: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Return the layer's output."""
        hidden = super().forward(hidden, rows)
        share, choice = self.router(hidden).softmax(-1).max(-1, keepdim=True)
        mixed = torch.zeros_like(hidden)
        for index, expert in enumerate(self.experts):
            if (choice == index).any():
                mixed = torch.where(choice == index, share * expert(hidden), mixed)
        return hidden + mixed


class Switched(Words):
    """The language model, whose layers treat some rows otherwise than others."""

    def __init__(self, layer: Callable[[], nn.Module] = SwitchedLayer) -> None:
        super().__init__()
        self.trunk.layers = nn.ModuleList(layer() for _ in range(BLOCK_COUNT))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits; of the first batches' rows it is 4, then 4 and 7, then 3, 4 and 7."""
        rows = tokens.sum(dim=1) % 8 == 0
        hidden = self.embed(tokens)
        for layer in self.trunk.layers:
            hidden = layer(hidden, rows)
        return self.head(self.norm(hidden))


# A whole stage and more without a trained parameter; blocks that are trained in part.
BACKBONE = ("trunk.layers.2.norm1", "trunk.layers.2.mlp.up.weight", "trunk.layers.3", "head")
BOTTOM = ("embed", "trunk.layers.0.norm2", "trunk.layers.1.attention.query")
KINDS: dict[str, tuple[Callable[[], nn.Module], Declaration | None]] = {
    "frozen-backbone": (partial(frozen_words, BACKBONE), WORDS),
    "frozen-top": (partial(frozen_words, BOTTOM), WORDS),
    "frozen-undeclared": (partial(frozen_words, BACKBONE), None),
    "branching": (partial(Switched, BranchingLayer), Declaration(blocks="trunk.layers")),
    "branching-undeclared": (partial(Switched, BranchingLayer), None),
    "switched": (Switched, replace(WORDS, norms=(*WORDS.norms, "norm3"))),
    "frozen": (partial(frozen_words, ["none"]), WORDS),
}


def partial_parity(
    *,
    strategy: dict[str, Any],
    kind: str,
    save: str | None = None,
    load: str | None = None,
    precision: str = "fp32",
) -> dict[str, Any]:
    """Train a few steps, from a checkpoint where there is one, and compare with the plain run."""
    plan = cpu_plan(model=small_model(), precision=precision, **strategy)
    session = Session(plan, device=CPU)
    build, declaration = KINDS[kind]
    trainer = session.parallelize(build, loss, adamw, declaration=declaration, seed=SEED)
    if load is not None:
        trainer.load(load)
    batches = global_batches(0, trainer.step_count + STEP_COUNT)
    losses = [trainer.step(*batch).loss for batch in session.shard(batches)]
    if save is not None:
        trainer.save(save)
    plain = plain_run(build, SEED, batches)
    return {
        "losses": losses,
        "plain_losses": plain["losses"][-STEP_COUNT:],
        "parameter_error": parameter_error(trainer, plain["parameters"]),
        "differences": floats_differences(everyone(list(session.report().differences_from_plan))),
        "frozen": everyone([_is_left_alone(trainer)]),
        "unused": sorted(
            unsplit_name(name, trainer.declaration)
            for name, parameter in trainer.model.named_parameters()
            if parameter.grad is None
        ),
        "frozen_error": parameter_error(trainer, plain["parameters"], is_trained=False),
    }


def partial_refusal(*, strategy: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return what `parallelize` refuses a module with, on every rank."""
    session = Session(cpu_plan(model=small_model(), **strategy), device=CPU)
    build, declaration = KINDS[kind]
    try:
        session.parallelize(build, loss, adamw, declaration=declaration, seed=SEED)
    except InputError as error:
        return {"messages": everyone([str(error)])}
    return {"messages": []}


def _is_left_alone(trainer: Trainer) -> bool:
    """Return whether frozen parameters have neither gradient nor optimizer, and all others do."""
    optimized = {parameter for update in trainer.updates for parameter, _ in update.pairs()}
    return all(
        parameter in optimized
        if parameter.requires_grad
        else parameter not in optimized and parameter.grad is None
        for parameter in trainer.model.parameters()
    )


PARTIAL_TASKS: tuple[Callable[..., dict[str, Any]], ...] = (partial_parity, partial_refusal)
