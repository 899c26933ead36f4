"""Tasks about buffers that change as tokens pass, and their plain runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from executor.apply.materialise import unsplit_name
from executor.buffers import persistent_buffers
from executor.session import Session
from planner.errors import InputError
from tests.distributed.own_models import WORDS, Layer, Words, loss, parameter_error
from tests.distributed.plans import FEWEST_BLOCKS, cpu_plan
from tests.distributed.reference import SEED, STEP_COUNT, adamw, global_batches
from tests.distributed.state_tasks import everyone

CPU = torch.device("cpu")


class CountingLayer(Layer):
    """A layer with a running mean of what it is given, which it adds, and a count of forwards.

    The mean is of the first `row_count` rows, the count of all.
    """

    def __init__(self, row_count: int | None = None) -> None:
        super().__init__()
        self.row_count = row_count
        self.register_buffer("running", torch.full((), 0.5))
        self.register_buffer("forwards", torch.zeros((), dtype=torch.int64))
        self.register_buffer("passing", torch.ones(()), persistent=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the layer's output, with the mean of the forwards before."""
        output = super().forward(hidden) + self.running.clone()
        with torch.no_grad():
            self.running.lerp_(hidden[: self.row_count].mean(), 0.3)
            self.forwards += 1
        return output


class Counting(Words):
    """The language model of such layers."""

    def __init__(self, row_count: int | None = None) -> None:
        super().__init__()
        self.trunk.layers = nn.ModuleList(CountingLayer(row_count) for _ in range(FEWEST_BLOCKS))


def buffers(
    *,
    strategy: dict[str, Any],
    averaged: list[str],
    declared: bool = True,
    load: str | None = None,
    save: str | None = None,
    rows: int | None = None,
) -> dict[str, Any]:
    """Train with changing buffers, and compare with a plain run whose mean is of some rows."""
    session = Session(cpu_plan(**strategy), device=CPU)
    trainer = session.parallelize(
        Counting,
        loss,
        adamw,
        declaration=WORDS if declared else None,
        seed=SEED,
        averaged_buffers=averaged,
    )
    if load is not None:
        trainer.load(load)
    batches = global_batches(0, trainer.step_count + STEP_COUNT)
    losses = [trainer.step(*batch).loss for batch in session.shard(batches)]
    trainer.buffers.agree()
    if save is not None:
        trainer.save(save)
    plain, plain_losses = _plain(partial(Counting, rows), batches)
    wanted = dict(plain.named_buffers())
    worst = max(
        abs(float(value) - float(wanted[unsplit_name(name, trainer.declaration)]))
        for name, value in persistent_buffers(trainer.model)
    )
    return {
        "losses": losses,
        "plain_losses": plain_losses[-STEP_COUNT:],
        "parameter_error": parameter_error(trainer, dict(plain.named_parameters())),
        "buffer_error": max(everyone([worst])),
    }


def averaged_refusal(*, strategy: dict[str, Any], pattern: str) -> dict[str, Any]:
    """Return what a pattern of averaged buffers is refused with."""
    session = Session(cpu_plan(**strategy), device=CPU)
    try:
        session.parallelize(Counting, loss, adamw, declaration=WORDS, averaged_buffers=[pattern])
    except InputError as error:
        return {"message": str(error)}
    return {"message": ""}


def _plain(
    build: Callable[[], nn.Module], batches: list[tuple[torch.Tensor, torch.Tensor]]
) -> tuple[nn.Module, list[float]]:
    torch.manual_seed(SEED)
    model = build()
    optimizer = adamw(model.parameters())
    losses = []
    for inputs, targets in batches:
        optimizer.zero_grad()
        value = loss(model(inputs), targets)
        value.backward()
        optimizer.step()
        losses.append(value.item())
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    return model, losses


BUFFER_TASKS: tuple[Callable[..., dict[str, Any]], ...] = (buffers, averaged_refusal)
