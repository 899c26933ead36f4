"""What gradients are clipped to, how a loss is scaled, and which compiler is chosen."""

from __future__ import annotations

import pytest
import torch

from executor.apply.compiling import chosen_compiler
from executor.errors import ModelMismatchError, UnsupportedPlanError
from executor.gradients import LossScale
from executor.numerics import stated_norm
from planner.schema.job import Job
from tests.builders import a_job


def test_a_scripts_gradients_are_left_alone_unless_it_or_the_job_itself_says_so() -> None:
    """A job that says nothing is priced with clipping all the same."""
    silent = Job()
    assert silent.prices_clipping
    assert stated_norm(silent, None) is None
    assert stated_norm(silent, 0.3) == 0.3
    assert stated_norm(Job(gradient_clipping=False), None) is None
    assert stated_norm(Job(gradient_clipping=True), None) == 1.0
    assert stated_norm(Job(gradient_clipping=True), 0.3) == 0.3


@pytest.mark.parametrize("norm", [0.0, -1.0, float("nan"), float("inf")])
def test_a_norm_that_is_no_positive_number_is_refused(norm: float) -> None:
    with pytest.raises(ModelMismatchError, match="max_gradient_norm: is not a positive number"):
        stated_norm(a_job(), norm)


def test_a_loss_scale_halves_after_an_overflow_and_doubles_after_2000_good_steps() -> None:
    scale = LossScale()
    assert scale.value == 65536.0
    scale.learn(overflowed=True)
    for _ in range(1999):
        scale.learn(overflowed=False)
    assert scale.value == 32768.0
    scale.learn(overflowed=False)
    assert scale.value == 65536.0


def test_an_overflow_begins_the_count_of_good_steps_anew() -> None:
    scale = LossScale(value=8.0, good_steps=1999)
    scale.learn(overflowed=True)
    scale.learn(overflowed=False)
    assert (scale.value, scale.good_steps) == (4.0, 1)


def test_a_scaled_loss_follows_the_scale() -> None:
    scale = LossScale(value=4.0)
    scaled = scale.of(lambda logits, targets: (logits - targets).sum())
    assert float(scaled(torch.ones(3), torch.zeros(3))) == 12.0
    scale.value = 2.0
    assert float(scaled(torch.ones(3), torch.zeros(3))) == 6.0


def test_blocks_are_compiled_where_the_job_has_fused_kernels_or_someone_asks() -> None:
    fused = a_job(fused_elementwise=True)
    assert chosen_compiler(a_job(), None) == "none"
    assert chosen_compiler(fused, None) == "inductor"
    assert chosen_compiler(fused, "none") == "none"
    assert chosen_compiler(a_job(), "aot_eager") == "aot_eager"


def test_an_unknown_compiler_is_refused_with_those_there_are() -> None:
    with pytest.raises(UnsupportedPlanError, match=r"compiler: .*got gcc.*inductor, aot_eager"):
        chosen_compiler(a_job(), "gcc")
