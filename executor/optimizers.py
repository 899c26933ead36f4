"""Optimizers as a script makes them: of parameters or of named ones, one or several together."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from executor.errors import ModelMismatchError

OptimizerFunction = Callable[[list[Any]], Optimizer | Sequence[Optimizer]]
_NAMED = "named_parameters"


def adamw(
    parameters: Sequence[torch.Tensor], *, learning_rate: float, foreach: bool = False
) -> Optimizer:
    """Return AdamW as plans price it: in fused kernels, on GPUs and on the host, or `foreach`.

    The latter, which is torch's default on GPUs, takes 4 bytes a parameter beside its states
    (torch/optim/adamw.py).
    """
    return torch.optim.AdamW(parameters, lr=learning_rate, foreach=foreach, fused=not foreach)


class Together(Optimizer):
    """Several optimizers of different parameters as one: their groups, states and steps."""

    def __init__(self, members: Sequence[Optimizer]) -> None:
        super().__init__([group for member in members for group in member.param_groups], {})
        self.members = tuple(members)
        for member in members:
            member.state = self.state

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update the parameters of all."""
        del closure
        for member in self.members:
            member.step()


def made_by(function: OptimizerFunction, names: Sequence[str]) -> Callable[[list[Any]], Optimizer]:
    """Return what makes one optimizer of parameters that have `names` in the unsplit model.

    A function whose first argument is called `named_parameters` gets pairs of name and parameter.
    """
    is_named = next(iter(inspect.signature(function).parameters), None) == _NAMED

    def made(parameters: list[Any]) -> Optimizer:
        given = list(zip(names, parameters, strict=True)) if is_named else parameters
        found = function(given)
        members = [found] if isinstance(found, Optimizer) else found
        if not isinstance(members, list | tuple) or not all(
            isinstance(member, Optimizer) for member in members
        ):
            raise ModelMismatchError(
                "must return a torch.optim.Optimizer, or a list of them",
                field="optimizer_function",
                value=type(found).__qualname__,
                remedy="return what torch.optim or a library of its kind makes",
            )
        for member in members:
            _check_step(member)
        _check_parameters(members, parameters)
        return members[0] if len(members) == 1 else Together(members)

    return made


def _check_parameters(members: Sequence[Optimizer], given: Sequence[nn.Parameter]) -> None:
    """Return if `members` update no others than the parameters `given`.

    Those of a model that the script has built for itself would be trained in place of the plan's.
    """
    known = {id(item) for item in given}
    taken = [item for each in members for group in each.param_groups for item in group["params"]]
    others = [item for item in taken if id(item) not in known]
    if others:
        raise ModelMismatchError(
            "must update the parameters that it is given, and is called with some at a time",
            field="optimizer_function",
            value=f"one of shape {tuple(others[0].shape)} that is not given",
            remedy="use its argument in place of model.parameters(), such as "
            "lambda parameters: torch.optim.AdamW(parameters)",
        )


def _check_step(optimizer: Optimizer) -> None:
    """Return if `optimizer` takes a step of gradients that there are."""
    closure = next(iter(inspect.signature(optimizer.step).parameters.values()), None)
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise ModelMismatchError(
            "computes the loss several times a step, by a closure that no trainer has",
            field="optimizer_function",
            value=type(optimizer).__qualname__,
            remedy="use an optimizer whose step() takes gradients as they are, as AdamW and SGD",
        )


def members_of(optimizer: Optimizer) -> Sequence[Optimizer]:
    """Return the optimizers that a script has made."""
    return optimizer.members if isinstance(optimizer, Together) else (optimizer,)


def member_names(optimizer: Optimizer) -> list[str]:
    """Return the classes of the optimizers that a script has made."""
    return [type(member).__qualname__ for member in members_of(optimizer)]
