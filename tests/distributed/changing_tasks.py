"""Tasks in which a script changes its model between steps, or its optimizer reads whole norms."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import distributed, nn
from torch.utils.checkpoint import checkpoint

from executor.models.own import Declaration
from executor.session import Session
from planner.errors import InputError
from tests.distributed.own_models import WORDS, Words, loss, parameter_error
from tests.distributed.plans import cpu_plan
from tests.distributed.reference import EPSILON, SEED, adamw, global_batches

STEPS = 4
BLOCKS = Declaration(blocks="trunk.layers")


class ByNorms(torch.optim.Optimizer):
    """Descends by steps as long as the norm of each parameter, read as a number."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Update the parameters."""
        del closure
        for parameter in self.param_groups[0]["params"]:
            share = parameter.norm().item() / (float(parameter.grad.norm()) + EPSILON)
            parameter.add_(parameter.grad, alpha=-0.01 * share)


class ByOneNorm(ByNorms):
    """Descends by steps of one length over all parameters."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Update the parameters."""
        del closure
        parameters = [item for item in self.param_groups[0]["params"] if item.grad is not None]
        norm = sum(float(item.grad.square().sum()) for item in parameters) ** 0.5
        for parameter in parameters:
            parameter.add_(parameter.grad, alpha=-0.1 / norm)


class Slowed(ByNorms):
    """AdamW, half of whose steps are taken back, from values that it notes when it is made."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        given = list(parameters)
        super().__init__(given)
        self._inner = adamw(given)
        self._slow = [item.detach().clone() for item in given]

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Update the parameters."""
        del closure
        self._inner.step()
        for parameter, slow in zip(self.param_groups[0]["params"], self._slow, strict=True):
            slow.lerp_(parameter, 0.5)
            parameter.copy_(slow)


class Reentered(Words):
    """Layers that are called twice, and checkpointed by torch's older way."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        hidden = self.embed(tokens)
        for layer in (*self.trunk.layers, *self.trunk.layers):
            hidden = checkpoint(layer, hidden, use_reentrant=True)
        return self.head(self.norm(hidden))


def unchanged(model: nn.Module, step: int) -> None:
    """Leave `model` as it is."""
    del model, step


def clamped(model: nn.Module, step: int) -> None:
    """Keep weights small, as by hand."""
    del step
    for parameter in model.parameters():
        parameter.data.clamp_(-0.1, 0.1)


def unfrozen(model: nn.Module, step: int) -> None:
    """Train the first layer from the second step to the third, and the embedding from there on."""
    for name, parameter in model.named_parameters():
        if "layers.0" in name:
            parameter.requires_grad_(step in {1, 2})
        if "embed" in name:
            parameter.requires_grad_(step >= 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A script: how it builds and optimizes, and what it does before each step."""

    optimizer: Callable[..., Any] = adamw
    change: Callable[[nn.Module, int], None] = unchanged


KINDS = {
    "clamped": Kind(change=clamped),
    "unfrozen": Kind(change=unfrozen),
    "by-norms": Kind(optimizer=ByNorms),
    "by-one-norm": Kind(optimizer=ByOneNorm),
    "slowed": Kind(optimizer=Slowed),
}


def changing_parity(*, strategy: dict[str, Any], kind: str) -> dict[str, Any]:
    """Train as a script of `kind` does under a plan, and compare with its plain run."""
    script = KINDS[kind]
    session = Session(cpu_plan(**strategy), device=torch.device("cpu"))
    trainer = session.parallelize(Words, loss, script.optimizer, declaration=WORDS, seed=SEED)
    losses = []
    for step, batch in enumerate(session.shard(global_batches(0, STEPS))):
        script.change(trainer.model, step)
        losses.append(trainer.step(*batch).loss)
    torch.manual_seed(SEED)
    plain, plain_losses = Words(), []
    optimizer = script.optimizer(plain.parameters())
    for step, (inputs, targets) in enumerate(global_batches(0, STEPS)):
        script.change(plain, step)
        optimizer.zero_grad()
        value = loss(plain(inputs), targets)
        value.backward()
        optimizer.step()
        plain_losses.append(value.item())
    expected = {name: item.detach() for name, item in plain.named_parameters()}
    return {
        "losses": losses,
        "plain_losses": plain_losses,
        "parameter_error": parameter_error(trainer, expected),
    }


def changing_refusal(*, strategy: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return what a script is refused with that no layout could train as it is."""
    try:
        _refused(Session(cpu_plan(**strategy), device=torch.device("cpu")), kind)
    except InputError as error:
        return {"message": str(error)}
    return {"message": ""}


def _refused(session: Session, kind: str) -> None:
    batches = global_batches(0, 2)
    if kind == "by-one-norm":
        session.parallelize(Words, loss, ByOneNorm, declaration=WORDS)
    elif kind == "reentered":
        trainer = session.parallelize(Reentered, loss, adamw, declaration=BLOCKS)
        trainer.step(*next(session.shard(batches)))
    elif kind == "unfrozen-late":
        trainer = session.parallelize(_frozen, loss, adamw, declaration=WORDS)
        unfrozen(trainer.model, 1)
        trainer.step(*next(session.shard(batches)))
    elif kind == "other-rows":
        trainer = session.parallelize(Words, loss, adamw, declaration=WORDS)
        trainer.step(*batches[distributed.get_rank()])


def _frozen() -> nn.Module:
    model = Words()
    unfrozen(model, 0)
    return model


CHANGING_TASKS: tuple[Callable[..., dict[str, Any]], ...] = (changing_parity, changing_refusal)
