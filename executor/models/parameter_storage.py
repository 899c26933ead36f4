"""Parameter storage: what of a model's parameters ranks could not split or average as they are."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from executor.errors import UnsupportedPlanError

# The last is what torch's recurrent modules keep of their parameters, and set anew with these.
_OF_TORCH = frozenset({"_parameters", "_buffers", "_modules", "_flat_weights"})


def check_storage(model: nn.Module) -> None:
    """Return if each parameter of `model` has elements, in order, and shares them with nothing.

    Two modules may share a parameter; one that is another's content under a name of its own
    (`head.weight.data = embed.weight.data`) would get storage of its own on ranks.

    Raises:
        UnsupportedPlanError: naming the first that does not.
    """
    parameters = list(model.named_parameters())
    for name, parameter in parameters:
        if parameter.numel() == 0:
            raise _refused(
                name, "has no elements, which no rank can share out", "leave it out of the model"
            )
        if not parameter.is_contiguous():
            raise _refused(
                name,
                "lies in memory in another order than its shape says",
                "leave memory_format out where the model is built, and give images "
                "memory_format=torch.channels_last: convolutions go by these",
            )
    held = [*parameters, *model.named_buffers()]
    spans = sorted((*_span(item), name) for name, item in held if item.numel() > 0)
    names = {name for name, _ in parameters}
    for (storage, _, end, one), (next_storage, begin, _, other) in pairwise(spans):
        if storage == next_storage and begin < end and names & {one, other}:
            raise _refused(
                f"{one} and {other}",
                "are one content under two names, and would be two on ranks",
                "let both modules have the same parameter, as by head.weight = embed.weight",
            )


def check_held_once(model: nn.Module) -> None:
    """Return unless a module has one of the parameters as a plain attribute besides.

    What takes a parameter's place on ranks, modules alone are given.

    Raises:
        UnsupportedPlanError: naming the attribute.
    """
    names = {id(item): name for name, item in model.named_parameters()}
    for path, module in model.named_modules():
        for attribute in vars(module).keys() - _OF_TORCH:
            value = vars(module)[attribute]
            for leaf in tree_leaves(value):
                if isinstance(leaf, nn.Parameter) and id(leaf) in names:
                    raise _refused(
                        f"{path}.{attribute}".lstrip("."),
                        f"keeps {names[id(leaf)]} outside of what torch knows of modules, where "
                        "it would stay as it is built, untrained",
                        "use the parameter of the module that has it, or let both modules have it, "
                        "as by head.weight = embed.weight",
                    )


def _span(tensor: torch.Tensor) -> tuple[int, int, int]:
    """Return a tensor's storage, and from which to before which byte of it the tensor lies."""
    last = sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    begin = int(tensor.storage_offset()) * tensor.element_size()
    end = begin + (int(last) + 1) * tensor.element_size()
    return tensor.untyped_storage()._cdata, begin, end  # noqa: SLF001 - no public identity


def _refused(name: str, problem: str, remedy: str) -> UnsupportedPlanError:
    return UnsupportedPlanError(problem, field="build_model", value=name, remedy=remedy)
