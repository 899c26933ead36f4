"""GELU written out moves, launches and keeps what torch's operations do, counted one by one.

Autocast's copy of the third power's input in 32 bits is made by hand: on CPU it makes none.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from planner.schema.model import Activation, DenseFeedForward
from planner.workload.activation_steps import activation_steps, step_copies

WIDTH = 4096
VIEWS = ("view", "detach", "alias", "empty")


class Counted(TorchDispatchMode):
    """Bytes that kernels read and write for each element, and how many kernels there are."""

    def __init__(self) -> None:
        super().__init__()
        self.moved, self.kernels = 0.0, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        put_out = function(*args, **(kwargs or {}))
        if not any(name in str(function) for name in VIEWS):
            self.kernels += 1
            for tensor in (*args, put_out):
                if isinstance(tensor, torch.Tensor) and tensor.numel() == WIDTH:
                    self.moved += tensor.element_size()
        return put_out


def written_out(rows: torch.Tensor, *, wide: bool) -> torch.Tensor:
    """MinGPT's `NewGELU`, and the copy that the next product makes of it."""
    cubed = torch.pow(rows.float() if wide else rows, 3.0)
    bent = torch.tanh(math.sqrt(2.0 / math.pi) * (rows + 0.044715 * cubed))
    return (0.5 * rows * (1.0 + bent)).to(rows.dtype)


def counted(*, wide: bool) -> tuple[Counted, Counted, int]:
    """Forward, backward, and the bytes an element that autograd keeps between."""
    rows = torch.randn(WIDTH, dtype=torch.float16, requires_grad=True).clone()
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), Counted() as there:
        activated = written_out(rows, wide=wide)
    gradient = torch.randn(WIDTH, dtype=torch.float16)
    with Counted() as back:
        activated.backward(gradient)
    return there, back, sum(kept.values())


@pytest.mark.parametrize(
    ("activation", "element_bytes"),
    [(Activation.GELU_STEPS, 2.0), (Activation.GELU_WIDE_STEPS, 4.0)],
)
def test_steps_are_what_torch_runs_beside_one_kernel(
    activation: Activation, element_bytes: float
) -> None:
    """One kernel reads and writes 2 bytes an element, 4 and 2 backward, and keeps 2."""
    there, back, kept = counted(wide=activation is Activation.GELU_WIDE_STEPS)
    shape = DenseFeedForward(ffn_size=WIDTH, gated=False, activation=activation)
    steps = activation_steps(shape)
    assert steps is not None
    assert steps.forward * element_bytes / WIDTH == there.moved - 4.0
    assert steps.backward * element_bytes / WIDTH == back.moved - 6.0
    assert steps.kernel_count == there.kernels - 1
    (copies,) = step_copies(shape).values()
    assert copies * element_bytes / WIDTH == kept - 2


def test_one_kernel_has_no_steps() -> None:
    plain: dict[str, Any] = {"ffn_size": WIDTH, "gated": False}
    assert activation_steps(DenseFeedForward(**plain)) is None
    assert step_copies(DenseFeedForward(**plain)) == {}
