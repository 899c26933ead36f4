"""Norms of gradients, clipping and loss scale on one rank, beside torch's own for one process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import distributed, nn

from executor.gradients import Gradients, LossScale

CPU = torch.device("cpu")


@pytest.fixture(autouse=True, scope="module")
def _one_rank() -> Iterator[None]:
    store = distributed.HashStore()
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def gradients_of(
    parameters: list[nn.Parameter], *, largest: float | None, scale: LossScale | None = None
) -> Gradients:
    """The gradients of one rank's parameters, each counted once."""
    return Gradients(
        parameters,
        counted_elsewhere=(),
        stage_ranks=1,
        device=CPU,
        largest_norm=largest,
        loss_scale=scale,
    )


def parameters_with(*gradients: torch.Tensor) -> list[nn.Parameter]:
    """Parameters of zeros with these gradients."""
    found = [nn.Parameter(torch.zeros_like(gradient)) for gradient in gradients]
    for parameter, gradient in zip(found, gradients, strict=True):
        parameter.grad = gradient.clone()
    return found


def test_the_norm_of_millions_of_elements_is_not_rounded_away() -> None:
    """0.1 x sqrt(2^24), where each piece of 2^12 elements is rounded by 2^12 x 2^-24 at most."""
    parameters = parameters_with(torch.full((2**24,), 0.1))
    norm = gradients_of(parameters, largest=None).norm()
    assert norm.item() == pytest.approx(409.6, rel=2.0**-12)


def test_the_norm_is_over_all_parameters_in_any_format_and_shape() -> None:
    """Sqrt(3^2 + 4^2 + 12^2) = 13."""
    wide = torch.tensor([[3.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    parameters = parameters_with(wide, torch.tensor([4.0, 0.0]), torch.tensor(12.0))
    assert gradients_of(parameters, largest=None).norm().item() == 13.0


def test_gradients_in_fp64_are_clipped_in_fp64() -> None:
    (parameter,) = parameters_with(torch.tensor([3.0, 4.0], dtype=torch.float64))
    gradients_of([parameter], largest=1.0).treat()
    assert parameter.grad is not None
    # as torch's clip_grad_norm_ has it: 1 / (5 + 1e-6)
    assert parameter.grad.tolist() == pytest.approx([3 / 5.000001, 4 / 5.000001], rel=1e-15)


STEPS: dict[str, list[float]] = {
    "usual": [0.3, -0.2, 0.1],
    "tiny": [2e-9, 1e-9, -3e-9],
    "large": [400.0, -900.0, 20.0],
    "infinite": [float("inf"), 0.1, 0.1],
    "undefined": [0.1, float("nan"), 0.1],
    "zero": [0.0, 0.0, 0.0],
    "beyond-16-bits": [3e6, -2e5, 1.0],
}


@pytest.mark.parametrize("largest", [None, 0.25, 1e6])
def test_steps_of_a_scaled_loss_are_those_of_torchs_scaler(largest: float | None) -> None:
    """Which steps are skipped, the scale after each, and the clipped gradients."""
    theirs = nn.Parameter(torch.ones(3))
    mine = nn.Parameter(torch.ones(3))
    optimizers = [torch.optim.SGD([item], lr=0.5) for item in (theirs, mine)]
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    scale = LossScale()
    gradients = gradients_of([mine], largest=largest, scale=scale)
    for name, values in STEPS.items():
        scaler.scale(torch.ones(()))  # it makes its scale at the first loss
        theirs.grad = torch.tensor(values) * scaler.get_scale()
        mine.grad = torch.tensor(values) * scale.value
        scaler.unscale_(optimizers[0])
        if largest is not None:
            nn.utils.clip_grad_norm_([theirs], largest)
        scaler.step(optimizers[0])
        scaler.update()
        if gradients.treat().are_usable:
            optimizers[1].step()
        assert scale.value == scaler.get_scale(), name
        torch.testing.assert_close(mine, theirs, rtol=4 * 2.0**-24, atol=0.0, msg=name)
