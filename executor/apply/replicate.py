"""Replication in full precision: whole parameters on every rank, gradients averaged as they come.

FSDP's own replication keeps a second, gathered copy of the parameters. Where forward runs in the
parameters' own format that copy serves nothing, so these modules are left as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import distributed, nn
from torch.distributed.tensor import DTensor

from executor.errors import UnsupportedPlanError
from executor.local_tensor import local_gradient
from executor.mesh import RankMesh


@dataclass(frozen=True, slots=True)
class _Reduction:
    """An all-reduce under way, and the buffer that it fills."""

    work: distributed.Work
    buffer: torch.Tensor


class Replica:
    """Modules whose gradients are averaged together once all of them have come.

    The collective overlaps with what is left of backward. Gradients move into the buffer that is
    reduced, so that they are held once.
    """

    def __init__(
        self,
        modules: Sequence[nn.Module],
        *,
        group: distributed.ProcessGroup,
        degree: int,
        apart: Sequence[nn.Module] = (),
    ) -> None:
        self._modules = nn.ModuleList(modules)
        self._apart = nn.ModuleList(apart)
        self._group = group
        self._degree = degree
        self._came_already: set[torch.Tensor] = set()
        self._hooked: list[nn.Parameter] = []
        self._reductions: list[_Reduction] = []
        self._on_complete: Callable[[], None] | None = None
        self._is_reduced = False
        self.unused: set[nn.Parameter] = set()

    def parameters(self) -> list[nn.Parameter]:
        """Return the modules' parameters, each once, without those of modules kept `apart`."""
        others = set(self._apart.parameters())
        return [item for item in self._modules.parameters() if item not in others]

    def with_more(self, modules: Iterable[nn.Module]) -> Replica:
        """Return a replica of these modules and of `modules`, which are reduced together."""
        return Replica(
            [*self._modules, *modules], group=self._group, degree=self._degree, apart=[*self._apart]
        )

    def goes_with(self, other: Replica, most_bytes: int) -> bool:
        """Return whether both are in one format, and of so many bytes together at most."""
        both = [*self.trained(), *other.trained()]
        size = sum(item.numel() * item.element_size() for item in both)
        return size <= most_bytes and len({item.dtype for item in both}) == 1

    def trained(self) -> Sequence[nn.Parameter]:
        """Return those that are to get a gradient, or were so when the first was expected."""
        return self._hooked or [item for item in self.parameters() if item.requires_grad]

    @property
    def is_complete(self) -> bool:
        """Return whether every gradient has come that is expected."""
        return len(self._came_already) == len(self._hooked)

    def expect(self, on_complete: Callable[[], None]) -> None:
        """Expect every gradient once more, and say so when they have come."""
        # Only now: taking storage for a model replaces its parameters, and scripts unfreeze some.
        known = set(self._hooked)
        for parameter in self.parameters():
            if parameter.requires_grad and parameter not in known:
                parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                    self._came
                )
                self._hooked.append(parameter)
        self._came_already.clear()
        self._is_reduced = False
        self._on_complete = on_complete

    def reduce(self) -> None:
        """Average the gradients; what has not got one on this rank has zeros."""
        self._is_reduced = True
        if not self._hooked:
            return
        self.unused = {item for item in self._hooked if item.grad is None}
        for parameter in self.unused:
            parameter.grad = torch.zeros_like(parameter)
        buffer = torch.cat([local_gradient(item).reshape(-1) for item in self._hooked])
        buffer.div_(self._degree)
        work = distributed.all_reduce(buffer, group=self._group, async_op=True)
        assert work is not None  # noqa: S101 - always given when asynchronous
        self._reductions.append(_Reduction(work, buffer))
        sizes = [local_gradient(item).numel() for item in self._hooked]
        pieces = torch.split(buffer, sizes)
        for parameter, piece in zip(self._hooked, pieces, strict=True):
            _move_gradient(parameter, piece)

    def finish(self) -> None:
        """Wait until the gradients are averages."""
        for reduction in self._reductions:
            reduction.work.wait()
        self._reductions.clear()
        self._is_reduced, self._on_complete = False, None

    def _came(self, parameter: torch.Tensor) -> None:
        if self._is_reduced:
            raise late_gradient(parameter)
        if self._on_complete is None:
            return
        self._came_already.add(parameter)
        if self.is_complete:
            self._on_complete()


class Scalars(Replica):
    """The parameters of no dimension, which no ZeRO stage can shard, and FSDP does not take."""

    @staticmethod
    def of(
        model: nn.Module, mesh: RankMesh, *, apart: Sequence[nn.Module] = ()
    ) -> tuple[Scalars, ...]:
        """Return those of `model` outside of modules kept `apart`, where ranks average them."""
        group, degree = mesh.data.get_group(), mesh.gradient_degree
        found = Scalars((model,), group=group, degree=degree, apart=apart)
        return (found,) if found.trained() and degree > 1 else ()

    def parameters(self) -> list[nn.Parameter]:
        """Return them, each once."""
        return [item for item in super().parameters() if item.dim() == 0]


def late_gradient(parameter: torch.Tensor) -> UnsupportedPlanError:
    """Return what is wrong with a gradient that comes after ranks have averaged the rest of it."""
    return UnsupportedPlanError(
        "has a gradient in several parts of one backward, of which ranks have averaged the first",
        field="build_model",
        value=f"a parameter of shape {tuple(parameter.shape)}",
        remedy="pass use_reentrant=False to torch.utils.checkpoint where a module is called twice",
    )


def scalars_of(modules: Iterable[nn.Module]) -> set[nn.Parameter]:
    """Return the parameters of `modules` that have no dimension."""
    return {item for module in modules for item in module.parameters() if item.dim() == 0}


class Replicas:
    """The replicas of a stage, in the order in which its backward completes them.

    They are reduced in that order on every rank, though some rank may lack a gradient: a replica
    that is not complete holds up those behind it until the backward's end.
    """

    def __init__(self, replicas: Iterable[Replica] = ()) -> None:
        self.members = tuple(replicas)
        self._waiting: list[Replica] = []

    def before_backward(self, *, is_last: bool) -> None:
        """Expect every gradient once more if this backward is the step's last."""
        self._waiting = list(self.members) if is_last else []
        for replica in self._waiting:
            replica.expect(self._reduce_complete)

    def after_backward(self) -> None:
        """Reduce what is left: the gradients of a divided backward, or those that some lack."""
        while self._waiting:
            self._waiting.pop(0).reduce()

    def finish(self) -> None:
        """Wait until the gradients are averages."""
        for replica in self.members:
            replica.finish()

    def _reduce_complete(self) -> None:
        while self._waiting and self._waiting[0].is_complete:
            self._waiting.pop(0).reduce()


def _move_gradient(parameter: nn.Parameter, piece: torch.Tensor) -> None:
    """Let the parameter's gradient be `piece`, a view of the buffer, and free what it was."""
    local = piece.view(local_gradient(parameter).shape)
    gradient = parameter.grad
    if isinstance(gradient, DTensor):
        local = DTensor.from_local(
            local,
            gradient.device_mesh,
            gradient.placements,
            run_check=False,
            shape=gradient.shape,
            stride=gradient.stride(),
        )
    parameter.grad = local
