"""Which target a loss leaves out of its mean is known where it says or shows it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from executor.errors import ModelMismatchError
from executor.losses import (
    check_mean,
    check_without_parameters,
    ignored_target_of,
    is_mean_of_parts,
    next_token_loss,
    target_weights_of,
)
from executor.numerics import Numerics
from tests.builders import a_job


def by_hand(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean over all targets, none of which may be left out."""
    return -logits.log_softmax(-1).gather(-1, targets.unsqueeze(-1)).mean()


def flat(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return torch's loss, as scripts write it."""
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def of_samples(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return torch's loss of one target for each sample."""
    assert targets.dim() == 1
    return functional.cross_entropy(logits, targets)


def leaving_out(target: int) -> Callable[..., torch.Tensor]:
    """Return torch's loss that leaves `target` out and does not say so."""
    return lambda logits, targets: functional.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=target
    )


def with_penalty(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the same beside a mean over all logits, which are of targets left out too."""
    return flat(logits, targets) + logits.square().mean()


def summed(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return a sum over targets that count, divided by all there are."""
    losses = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
    return losses / targets.numel()


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (next_token_loss, -100),
        (functional.cross_entropy, -100),
        (partial(functional.cross_entropy, label_smoothing=0.1), -100),
        (partial(functional.cross_entropy, ignore_index=0), 0),
        (nn.CrossEntropyLoss(), -100),
        (nn.CrossEntropyLoss(ignore_index=3), 3),
        (flat, -100),
        (of_samples, -100),
        (leaving_out(-1), -1),
        (leaving_out(5), 5),
        (by_hand, None),
        (with_penalty, None),
        (summed, None),
    ],
)
def test_a_loss_says_or_shows_what_it_leaves_out(
    loss: Callable[..., Any], expected: int | None
) -> None:
    assert ignored_target_of(loss, 8) == expected


def test_a_loss_of_unknown_classes_is_tried_with_a_few() -> None:
    assert ignored_target_of(flat, None) == -100
    assert ignored_target_of(leaving_out(1), None) == 1


@pytest.mark.parametrize("loss", [flat, of_samples, by_hand, with_penalty, summed])
def test_a_mean_passes(loss: Callable[..., Any]) -> None:
    check_mean(loss, 8)


def test_a_sum_is_refused() -> None:
    with pytest.raises(ModelMismatchError, match=r"adds up over targets.*reduction='mean'"):
        check_mean(partial(functional.cross_entropy, reduction="sum"), None)


def test_a_loss_that_takes_parameters_of_its_own_is_refused() -> None:
    """As of a model that was built before, whose weights are not those that are trained."""
    weight = nn.Parameter(torch.ones(4, 4))
    with pytest.raises(ModelMismatchError, match=r"loss_function: .*meshwright\.add_loss"):
        check_without_parameters(lambda *given: flat(*given) + weight.square().mean(), 8)
    check_without_parameters(lambda *given: flat(*given) + weight.detach().square().mean(), 8)


WEIGHTS = torch.ones(8).index_fill(0, torch.tensor([6]), 5.0)
weighted = partial(functional.cross_entropy, weight=WEIGHTS)


def weighted_rows(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the same of tokens, as scripts write it."""
    return weighted(logits.flatten(0, 1), targets.flatten())


def balanced(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return a loss with weights that add up to the same in both halves of the classes."""
    weights = torch.tensor([1.0, 1, 1, 5, 5, 1, 1, 1])
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), weights)


def weighted_by_hand(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the same mean in a script's own words."""
    losses = functional.cross_entropy(logits, targets, reduction="none")
    return (losses * WEIGHTS[targets]).sum() / WEIGHTS[targets].sum()


def without_several(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean over targets but for two classes."""
    counts = ((targets != 0) & (targets != 2)).float()
    losses = functional.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="none")
    return (losses * counts.flatten()).sum() / counts.sum()


def contrasted(vectors: torch.Tensor, _targets: torch.Tensor) -> torch.Tensor:
    """Return how well rows are told from the others of their batch."""
    rows = vectors.flatten(1)
    return functional.cross_entropy(rows @ rows.T, torch.arange(len(rows)))


def root(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the root of the mean square error."""
    return functional.mse_loss(outputs, targets).sqrt()


def drawing(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return a loss that draws anew each time."""
    return flat(functional.dropout(logits), targets)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (flat, True),
        (of_samples, True),
        (functional.cross_entropy, True),
        (leaving_out(5), True),
        (functional.mse_loss, True),
        (functional.binary_cross_entropy_with_logits, True),
        (drawing, True),
        (lambda outputs, _targets: outputs.loss, True),
        (weighted, False),
        (weighted_rows, False),
        (balanced, False),
        (lambda logits, targets: flat(logits, targets).sqrt(), False),
        (contrasted, False),
        (root, False),
    ],
)
def test_a_loss_is_the_mean_of_its_parts_or_is_told_not_to_be(
    loss: Callable[..., Any], expected: bool
) -> None:
    assert is_mean_of_parts(loss, 8, ignored_target=5) is expected


ONES_BUT_6 = [1.0, 1, 1, 1, 1, 1, 5, 1]


@pytest.mark.parametrize("class_count", [8, None, 1000])
@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (weighted, ONES_BUT_6),
        (nn.CrossEntropyLoss(WEIGHTS, label_smoothing=0.1), ONES_BUT_6),
        (weighted_rows, ONES_BUT_6),
        (weighted_by_hand, ONES_BUT_6),
        (balanced, [1.0, 1, 1, 5, 5, 1, 1, 1]),
        (lambda outputs, targets: weighted(outputs.log_softmax(-1), targets), ONES_BUT_6),
    ],
)
def test_weights_of_classes_are_found_in_a_loss_that_divides_by_them(
    loss: Callable[..., Any], expected: list[float], class_count: int | None
) -> None:
    """Of 8 classes, also where the model's are not known, or are others than the loss takes."""
    found = target_weights_of(loss, class_count, ignored_target=-100)
    assert found is not None
    assert found.tolist() == expected
    assert is_mean_of_parts(loss, class_count, ignored_target=-100, target_weights=found)


def test_weights_in_16_bits_beside_such_logits_are_found() -> None:
    """Beside logits in bf16 torch takes weights in bf16 alone, and trials are in fp32."""
    loss = nn.CrossEntropyLoss(WEIGHTS.bfloat16(), ignore_index=0)
    assert ignored_target_of(loss, 8) == 0
    found = target_weights_of(loss, 8, ignored_target=0)
    assert found is not None
    assert found.tolist()[1:] == ONES_BUT_6[1:]


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_losses_in_16_bits_are_added_and_scaled_in_32(precision: str) -> None:
    """2 x 2**16, as an fp16 loss of 2 is scaled, is no number of fp16."""
    numerics = Numerics.of(
        a_job(precision=precision), None, output_dtype=torch.float16, ignored_target=None
    )
    logits = torch.full((1, 2), 2.0, dtype=torch.float16)
    loss = numerics.loss(lambda given, _targets: given.mean())(logits, torch.zeros(1))
    scale = 2.0**16 if precision == "fp16" else 1.0
    assert loss.dtype is torch.float32
    assert float(loss) == 2.0 * scale


def test_a_lone_weight_amid_a_large_vocabulary_is_found() -> None:
    """Of so many classes a few at both ends are tried, and those that vectors tell of."""
    weights = torch.ones(50_257).index_fill(0, torch.tensor([25_000]), 3.0)
    loss = partial(functional.cross_entropy, weight=weights)
    found = target_weights_of(loss, 50_257, ignored_target=-100)
    assert found is not None
    assert found[24_999:25_002].tolist() == [1.0, 3.0, 1.0]


def test_several_targets_that_are_left_out_weigh_nothing() -> None:
    found = target_weights_of(without_several, 6, ignored_target=0)
    assert found is not None
    assert found.tolist() == [0.0, 1.0, 0.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    "loss",
    [flat, of_samples, nn.MultiMarginLoss(weight=WEIGHTS), functional.mse_loss, contrasted, root],
)
def test_other_losses_have_no_weights_of_classes(loss: Callable[..., Any]) -> None:
    assert target_weights_of(loss, 8, ignored_target=None) is None
