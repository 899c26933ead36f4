"""Coupling: optimizers that update a parameter by what others have, such as one norm of all.

Parts of a model that lie on other meshes, stages or hosts have optimizers of their own, which know
nothing of one another: for most that is all the same, for Prodigy, say, it is another step.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import nn
from torch.optim import Optimizer

from executor.errors import OF_NO_USE, UnsupportedPlanError
from executor.optimizers import members_of

_UNCOUPLED = "torch.optim."
_STEPS = 3
_PLAIN = (bool, int, float, complex, str, tuple, type(None))
_OF_EACH = frozenset(vars(torch.optim.SGD([nn.Parameter(torch.zeros(1))])))


def check_uncoupled(optimizers: Sequence[Optimizer], *, are_several: bool) -> None:
    """Return unless one of `optimizers`, which `are_several` of one model, couples parameters.

    Raises:
        UnsupportedPlanError: naming it.
    """
    for optimizer in optimizers if are_several else ():
        for member in members_of(optimizer):
            if is_coupled(member):
                raise UnsupportedPlanError(
                    "updates a parameter by what all others have, and parts of the plan have "
                    "optimizers of their own",
                    field="optimizer_function",
                    value=type(member).__qualname__,
                    remedy="plan with one ZeRO stage for all parts, tensor_parallel_degree and "
                    "pipeline_parallel_degree limited to 1 and limits.offload [], or use an "
                    "optimizer that updates each parameter by itself",
                )


def is_coupled(optimizer: Optimizer) -> bool:
    """Return whether a parameter moves otherwise where others have gradients too.

    It is tried on small parameters in place of the real ones. One that cannot be tried so counts as
    uncoupled.
    """
    own = {name: item for name, item in vars(optimizer).items() if name not in _OF_EACH}
    is_known = type(optimizer).__module__.startswith(_UNCOUPLED)
    if is_known or not all(isinstance(item, _PLAIN) for item in own.values()):
        return False
    try:
        return not torch.equal(_moved(optimizer, alone=True), _moved(optimizer, alone=False))
    except OF_NO_USE:
        return False


def _moved(optimizer: Optimizer, *, alone: bool) -> torch.Tensor:
    """Return the first of small parameters after some steps, `alone` or beside others."""
    given = [item for group in optimizer.param_groups for item in group["params"]]
    small = [nn.Parameter(torch.full((2,) * item.dim(), 0.5, dtype=item.dtype)) for item in given]
    memo = {id(item): stand_in for item, stand_in in zip(given, small, strict=True)}
    twin = object.__new__(type(optimizer))
    vars(twin).update(copy.deepcopy(vars(optimizer), memo))
    with torch.random.fork_rng(devices=[]):
        for step in range(_STEPS):
            torch.manual_seed(step)
            for index, item in enumerate(small):
                item.grad = torch.full_like(item, 0.1 * (index + 1)) if index * alone == 0 else None
            twin.step()
    return small[0].detach()
