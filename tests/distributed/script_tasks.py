"""Tasks about scripts that add to the loss inside a module, or group parameters by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from executor.added_loss import add_loss
from executor.session import Session
from tests.distributed.own_models import WIDTH, WORDS, Layer, Words, loss, parameter_error
from tests.distributed.plans import BLOCK_COUNT, cpu_plan, small_model
from tests.distributed.reference import EPSILON, SEED, STEP_COUNT, global_batches

CPU = torch.device("cpu")
# Of the layer's own matrices a third part.
PROBED = replace(WORDS, norms=(*WORDS.norms, "probe"))


class BalancedLayer(Layer):
    """A layer that adds the mean square of a norm of its output to the loss.

    Plain training takes the values from `kept`, which a planned one leaves alone.
    """

    kept: list[torch.Tensor] | None = None

    def __init__(self) -> None:
        super().__init__()
        self.probe = nn.LayerNorm(WIDTH)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the layer's output."""
        hidden = super().forward(hidden)
        value = 0.1 * (self.probe(hidden) - 0.5).square().mean()
        if self.kept is None:
            return add_loss(hidden, value)
        self.kept.append(value)
        return hidden


class Balanced(Words):
    """The language model of such layers, which marks the parameters that are to decay."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk.layers = nn.ModuleList(BalancedLayer() for _ in range(BLOCK_COUNT))
        for parameter in self.parameters():
            parameter.decays = parameter.dim() == 2


def grouped(named_parameters: Iterable[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
    """Return AdamW whose rates grow with depth, and which decays what the module has marked."""
    groups: dict[tuple[int, bool], list[nn.Parameter]] = {}
    for name, item in named_parameters:
        layer = int(name.split(".")[2]) if name.startswith("trunk.layers.") else -1
        decays: bool = item.decays  # type: ignore[attr-defined]
        groups.setdefault((layer, decays), []).append(item)
    return torch.optim.AdamW(
        [
            {
                "params": items,
                "lr": 1e-3 * (layer + 1) if layer >= 0 else 5e-4,
                "weight_decay": 0.1 if decays else 0.0,
            }
            for (layer, decays), items in groups.items()
        ],
        eps=EPSILON,
    )


def two(named_parameters: Iterable[tuple[str, nn.Parameter]]) -> list[torch.optim.Optimizer]:
    """Return Muon of the blocks' matrices, and AdamW of all else."""
    matrices, others = [], []
    for name, item in named_parameters:
        is_matrix = name.startswith("trunk.layers.") and item.dim() == 2
        (matrices if is_matrix else others).append(item)
    made: list[torch.optim.Optimizer] = []
    if matrices:
        made.append(torch.optim.Muon(matrices, lr=1e-2))
    if others:
        made.append(torch.optim.AdamW(others, lr=1e-3, eps=EPSILON))
    return made


OPTIMIZERS = {"grouped": grouped, "two": two}


def script_parity(
    *, strategy: dict[str, Any], precision: str = "fp32", optimizer: str = "grouped"
) -> dict[str, Any]:
    """Train with added losses and parameters grouped by name, and compare with the plain run."""
    plan = cpu_plan(model=small_model(), precision=precision, **strategy)
    session = Session(plan, device=CPU)
    function = OPTIMIZERS[optimizer]
    trainer = session.parallelize(Balanced, loss, function, declaration=PROBED, seed=SEED)
    batches = global_batches(0, STEP_COUNT)
    losses = [trainer.step(*batch).loss for batch in session.shard(batches)]
    plain, plain_losses = _plain(batches, function)
    return {
        "losses": losses,
        "plain_losses": plain_losses,
        "parameter_error": parameter_error(trainer, plain),
    }


def _plain(
    batches: Iterable[tuple[torch.Tensor, torch.Tensor]], function: Callable[..., Any]
) -> tuple[dict[str, torch.Tensor], list[float]]:
    torch.manual_seed(SEED)
    model = Balanced()
    made = function(model.named_parameters())
    optimizers = made if isinstance(made, list) else [made]
    losses = []
    for inputs, targets in batches:
        kept: list[torch.Tensor] = []
        for layer in model.trunk.layers:
            layer.kept = kept
        model.zero_grad()
        value = loss(model(inputs), targets) + sum(kept)
        value.backward()
        for optimizer in optimizers:
            optimizer.step()
        losses.append(value.item())
    return {name: value.detach() for name, value in model.named_parameters()}, losses


SCRIPT_TASKS: tuple[Callable[..., dict[str, Any]], ...] = (script_parity,)
