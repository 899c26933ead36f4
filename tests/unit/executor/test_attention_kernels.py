"""Attention with its log-sum-exp, by the kernel and by the matrix of scores."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from executor.apply.attention_kernels import (
    Gathered,
    Meeting,
    attend,
    attend_backward,
    attend_by_scores,
    attend_by_scores_backward,
    default_scale,
)


def a_meeting(*, queries: int, keys: int, is_causal: bool) -> tuple[Meeting, torch.Tensor]:
    """Two sequences with three heads of width eight, and the output's gradient, in fp64."""
    generator = torch.Generator().manual_seed(0)
    drawn = {"generator": generator, "dtype": torch.float64}
    query, gradient = (torch.randn(2, 3, queries, 8, **drawn) for _ in range(2))
    key, value = (torch.randn(2, 3, keys, 8, **drawn) for _ in range(2))
    scale = default_scale(query)
    meeting = Meeting(query=query, key=key, value=value, scale=scale, is_causal=is_causal)
    return meeting, gradient


SHAPES = [(6, 6, True), (6, 6, False), (4, 10, False)]


@pytest.mark.parametrize(("queries", "keys", "is_causal"), SHAPES)
@pytest.mark.parametrize("attention", [attend, attend_by_scores])
def test_the_output_is_torchs_and_the_log_sum_exp_that_of_the_scores(
    attention: type, queries: int, keys: int, *, is_causal: bool
) -> None:
    meeting, _ = a_meeting(queries=queries, keys=keys, is_causal=is_causal)
    gathered: Gathered = attention(meeting)
    expected = functional.scaled_dot_product_attention(*meeting.tensors, is_causal=is_causal)
    torch.testing.assert_close(gathered.out, expected)
    last = (meeting.query[:, :, -1:] @ meeting.key.transpose(-1, -2)) * 8**-0.5
    torch.testing.assert_close(gathered.logsumexp[:, :, -1:], last.logsumexp(dim=-1))


@pytest.mark.parametrize(("queries", "keys", "is_causal"), SHAPES)
@pytest.mark.parametrize("backward", [attend_backward, attend_by_scores_backward])
def test_gradients_are_those_of_autograd(
    backward: type, queries: int, keys: int, *, is_causal: bool
) -> None:
    meeting, gradient = a_meeting(queries=queries, keys=keys, is_causal=is_causal)
    leaves = [tensor.clone().requires_grad_() for tensor in meeting.tensors]
    functional.scaled_dot_product_attention(*leaves, is_causal=is_causal).backward(gradient)
    actual = backward(meeting, attend(meeting), gradient)
    for mine, leaf in zip(actual, leaves, strict=True):
        torch.testing.assert_close(mine, leaf.grad)


def test_gradients_of_two_halves_of_the_keys_are_those_of_all_keys() -> None:
    """Given what was gathered from all keys, each half's backward is its part of the whole."""
    meeting, gradient = a_meeting(queries=4, keys=10, is_causal=False)
    gathered = attend(meeting)
    whole = attend_backward(meeting, gathered, gradient)
    halves = [
        attend_backward(
            Meeting(
                query=meeting.query,
                key=meeting.key[:, :, rows].contiguous(),
                value=meeting.value[:, :, rows].contiguous(),
                scale=meeting.scale,
                is_causal=False,
            ),
            gathered,
            gradient,
        )
        for rows in (slice(0, 5), slice(5, 10))
    ]
    torch.testing.assert_close(halves[0][0] + halves[1][0], whole[0])
    torch.testing.assert_close(torch.cat((halves[0][1], halves[1][1]), dim=2), whole[1])
    torch.testing.assert_close(torch.cat((halves[0][2], halves[1][2]), dim=2), whole[2])
