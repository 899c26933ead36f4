"""Tasks about scripts that add to the loss inside a module, or group parameters by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from executor.added_loss import add_loss
from executor.models.own import Declaration
from executor.session import Session
from tests.distributed.own_models import (
    VOCABULARY,
    WIDTH,
    WORDS,
    Layer,
    Words,
    loss,
    parameter_error,
)
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


class Foresight(nn.Module):
    """A head that predicts the token after the next as well, from the next one's embedding.

    So has DeepSeek-V3 it (arXiv:2412.19437, section 2.2): the embedding and what puts out logits
    are the main model's.
    """

    kept: list[torch.Tensor] | None = None

    def __init__(self, embed: nn.Embedding) -> None:
        super().__init__()
        self.embed = embed
        self.mix, self.layer = nn.Linear(2 * WIDTH, WIDTH), Layer()
        self.out = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, hidden: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits of the next token."""
        following = self.embed(tokens.roll(-1, dims=1))
        further = self.out(self.layer(self.mix(torch.cat([hidden, following], dim=-1))))
        value = 0.3 * loss(further[:, :-2], tokens[:, 2:])
        if self.kept is None:
            hidden = add_loss(hidden, value)
        else:
            self.kept.append(value)
        return self.out(hidden)


class Foreseeing(Words):
    """The language model with such a head, whose matrices decay."""

    def __init__(self) -> None:
        super().__init__(BLOCK_COUNT)
        self.head = Foresight(self.embed)
        for parameter in self.parameters():
            parameter.decays = parameter.dim() == 2

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        hidden = self.embed(tokens)
        for layer in self.trunk.layers:
            hidden = layer(hidden)
        return self.head(self.norm(hidden), tokens)


MODELS: dict[str, tuple[Callable[[], nn.Module], Declaration]] = {
    "balanced": (Balanced, PROBED),
    "foreseeing": (Foreseeing, WORDS),
}


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
    *,
    strategy: dict[str, Any],
    precision: str = "fp32",
    optimizer: str = "grouped",
    model: str = "balanced",
) -> dict[str, Any]:
    """Train with added losses and parameters grouped by name, and compare with the plain run."""
    plan = cpu_plan(model=small_model(), precision=precision, **strategy)
    session = Session(plan, device=CPU)
    function = OPTIMIZERS[optimizer]
    build, declaration = MODELS[model]
    trainer = session.parallelize(build, loss, function, declaration=declaration, seed=SEED)
    batches = global_batches(0, STEP_COUNT)
    losses = [trainer.step(*batch).loss for batch in session.shard(batches)]
    plain, plain_losses = _plain(build, batches, function)
    return {
        "losses": losses,
        "plain_losses": plain_losses,
        "parameter_error": parameter_error(trainer, plain),
    }


def _plain(
    build: Callable[[], nn.Module],
    batches: Iterable[tuple[torch.Tensor, torch.Tensor]],
    function: Callable[..., Any],
) -> tuple[dict[str, torch.Tensor], list[float]]:
    torch.manual_seed(SEED)
    model = build()
    made = function(model.named_parameters())
    optimizers = made if isinstance(made, list) else [made]
    losses = []
    for inputs, targets in batches:
        kept: list[torch.Tensor] = []
        for module in model.modules():
            if isinstance(module, BalancedLayer | Foresight):
                module.kept = kept
        model.zero_grad()
        value = loss(model(inputs), targets) + sum(kept)
        value.backward()
        for optimizer in optimizers:
            optimizer.step()
        losses.append(value.item())
    return {name: value.detach() for name, value in model.named_parameters()}, losses


SCRIPT_TASKS: tuple[Callable[..., dict[str, Any]], ...] = (script_parity,)
