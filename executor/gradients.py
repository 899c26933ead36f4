"""Gradients: their norm over the whole mesh, clipping by it, and the scale of an fp16 loss.

A piece of a gradient may lie on several ranks: each counts its share, so that the sum over all
ranks has every piece once:

    |g|^2 = sum over ranks and parameters of |local piece|^2 / ranks that hold this piece
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate

from executor.errors import ModelMismatchError
from executor.host_memory import plain
from executor.precision import wide

# As torch.nn.utils.clip_grad_norm_ has it.
_NORM_EPSILON = 1e-6
# The usual choice, and the default of Megatron-LM (`--clip-grad`) and of torchtitan (`max_norm`).
USUAL_NORM = 1.0
# As torch.amp.GradScaler has them.
INITIAL_SCALE = 2.0**16
SCALE_GROWTH = 2.0
SCALE_BACKOFF = 0.5
STEPS_BEFORE_GROWTH = 2000
_SUMMABLE_ELEMENTS = 2**12

LossFunction = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(slots=True, kw_only=True)
class LossScale:
    """What an fp16 loss is multiplied by, so that small gradients do not vanish.

    It halves after a step whose gradients overflowed, which is skipped, and doubles after 2,000
    steps without one. Source: Micikevicius et al. 2018, arXiv:1710.03740, section 3.2.
    """

    value: float = INITIAL_SCALE
    good_steps: int = 0

    def of(self, loss_function: LossFunction) -> LossFunction:
        """Return `loss_function` times the scale of the moment."""

        def scaled(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            return loss_function(logits, targets) * self.value

        return scaled

    def learn(self, *, overflowed: bool) -> None:
        """Take over how a step went."""
        if overflowed:
            self.value, self.good_steps = self.value * SCALE_BACKOFF, 0
            return
        self.good_steps += 1
        if self.good_steps == STEPS_BEFORE_GROWTH:
            self.value, self.good_steps = self.value * SCALE_GROWTH, 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Treated:
    """What became of a step's gradients: their norm where it was needed, and whether they serve."""

    norm: torch.Tensor | None = None
    are_usable: bool = True


class _Kept(NamedTuple):
    """Where and in which format a gradient is kept: torch takes many at once if they are alike."""

    device: torch.device
    dtype: torch.dtype

    @staticmethod
    def of(gradient: torch.Tensor) -> _Kept:
        return _Kept(gradient.device, gradient.dtype)


class Gradients:
    """The gradients of a rank's parameters, between backward and the optimizer.

    `counted_elsewhere` are copies of weights that another stage holds as well, and counts.
    `stage_ranks` hold parts of the same stages; `largest_norm` is `None` where nothing is clipped.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        *,
        counted_elsewhere: Collection[nn.Parameter],
        stage_ranks: int,
        device: torch.device,
        largest_norm: float | None,
        loss_scale: LossScale | None = None,
    ) -> None:
        self._parameters = list(parameters)
        self._counted_elsewhere = set(counted_elsewhere)
        self._stage_ranks = stage_ranks
        self._device = device
        self._largest_norm = largest_norm
        self.loss_scale = loss_scale

    def treat(self) -> Treated:
        """Undo the loss scale and clip, in one pass; a collective call if either is asked for."""
        if self._largest_norm is None and self.loss_scale is None:
            return Treated()
        scale = 1.0 if self.loss_scale is None else self.loss_scale.value
        norm = self.norm() / scale
        if self.loss_scale is not None:
            overflowed = not math.isfinite(float(norm))
            self.loss_scale.learn(overflowed=overflowed)
            if overflowed:
                return Treated(norm=norm, are_usable=False)
        factor = torch.ones_like(norm) / scale
        if self._largest_norm is not None:
            factor = factor * torch.clamp(self._largest_norm / (norm + _NORM_EPSILON), max=1.0)
        self._multiply(factor)
        return Treated(norm=norm)

    def norm(self) -> torch.Tensor:
        """Return the 2-norm of the whole model's gradient; a collective call."""
        total = torch.zeros((), dtype=torch.float64, device=self._device)
        for (share, kept), gradients in self._by_share().items():
            pieces = _summable(gradients) if kept.device.type == "cpu" else gradients
            norms = torch._foreach_norm(pieces, 2, dtype=wide(kept.dtype))  # noqa: SLF001
            squares = torch.stack(list(norms)).double().square().sum()
            total += (squares * share).to(self._device)
        distributed.all_reduce(total)
        return total.sqrt()

    def _by_share(self) -> dict[tuple[float, _Kept], list[torch.Tensor]]:
        """Return local gradients by the share of each that this rank counts, and how it is kept."""
        grouped: dict[tuple[float, _Kept], list[torch.Tensor]] = {}
        sum_put_off(self._parameters)
        for parameter in self._parameters:
            gradient = parameter.grad
            if gradient is None or parameter in self._counted_elsewhere:
                continue
            share = piece_count(gradient) / self._stage_ranks
            local = plain(gradient)
            if local.numel() > 0:
                grouped.setdefault((share, _Kept.of(local)), []).append(local)
        return grouped

    def _multiply(self, factor: torch.Tensor) -> None:
        alike: dict[_Kept, list[torch.Tensor]] = {}
        for parameter in self._parameters:
            if parameter.grad is not None:
                local = plain(parameter.grad)
                alike.setdefault(_Kept.of(local), []).append(local)
        for kept, gradients in alike.items():
            torch._foreach_mul_(gradients, factor.to(device=kept.device, dtype=wide(kept.dtype)))


def check_norm(norm: float) -> float:
    """Return `norm`, if gradients can be clipped to it.

    Raises:
        ModelMismatchError: if it is no positive number.
    """
    if not (math.isfinite(norm) and norm > 0.0):
        raise ModelMismatchError(
            "is not a positive number",
            field="max_gradient_norm",
            value=norm,
            remedy="give a positive norm, or none to leave gradients as they are",
        )
    return norm


def _summable(gradients: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Return the elements of `gradients` in pieces so short that a sum in fp32 is exact enough.

    torch's kernel for CPUs adds all squares of a tensor to the same few numbers, which soon are too
    large to grow by one more: the norm of 10^8 elements comes out 1 % too small.
    """
    flat = (gradient.reshape(-1) for gradient in gradients)
    return [piece for each in flat for piece in torch.split(each, _SUMMABLE_ELEMENTS)]


def piece_count(gradient: torch.Tensor) -> int:
    """Return into how many pieces `gradient` is divided over the ranks of its mesh."""
    if not isinstance(gradient, DTensor):
        return 1
    sizes = [
        gradient.device_mesh.size(axis)
        for axis, placement in enumerate(gradient.placements)
        if not placement.is_replicate()
    ]
    return math.prod(sizes)


def sum_put_off(parameters: Iterable[nn.Parameter]) -> None:
    """Do the sums over ranks that torch has put off, those over one group together.

    Under sequence parallelism each norm's gradient is such a sum: one message for all of them.
    """
    waiting: dict[tuple[DeviceMesh, torch.dtype], list[nn.Parameter]] = {}
    for parameter in parameters:
        gradient = parameter.grad
        if not isinstance(gradient, DTensor) or not _is_put_off(gradient):
            continue
        if gradient.device_mesh.ndim == 1 and gradient.placements[0].is_partial("sum"):
            waiting.setdefault((gradient.device_mesh, gradient.dtype), []).append(parameter)
        else:
            whole = [Replicate() if item.is_partial() else item for item in gradient.placements]
            parameter.grad = gradient.redistribute(placements=whole)
    for (mesh, _), alike in waiting.items():
        _sum_together(mesh, alike)


def _is_put_off(gradient: DTensor) -> bool:
    return any(item.is_partial() for item in gradient.placements)


def _sum_together(mesh: DeviceMesh, parameters: Sequence[nn.Parameter]) -> None:
    parts = [plain(parameter.grad) for parameter in parameters if parameter.grad is not None]
    buffer = torch.cat([part.reshape(-1) for part in parts])
    distributed.all_reduce(buffer, group=mesh.get_group())
    sums = torch.split(buffer, [part.numel() for part in parts])
    for parameter, part, total in zip(parameters, parts, sums, strict=True):
        parameter.grad = DTensor.from_local(
            total.view(part.shape), mesh, (Replicate(),), run_check=False
        )
