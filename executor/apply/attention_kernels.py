"""Attention of one set of queries to one set of keys, with its log-sum-exp.

torch's public attention does not return the log-sum-exp that partial outputs are merged by, nor
takes one in backward; its kernels do. On a device or number format without such a kernel here, the
matrix of scores is formed, which takes memory of its size.

Shapes: queries [B, N, S, H], keys and values [B, N, T, H], log-sum-exp [B, N, S].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from executor.precision import widened

_ATEN = torch.ops.aten
_NARROW = (torch.bfloat16, torch.float16)
# Source: aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp of torch (TORCH_CHECKs).
_FLASH_HEAD_MULTIPLE = 8
_FLASH_HEAD_LIMIT = 256
_FLASH_CAPABILITY = (8, 0)
Gradients = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """Queries, the keys and values that they meet, and how.

    `visible` says which keys a query sees beside, [B, 1, S, T]: no kernel here takes it.
    """

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    scale: float
    is_causal: bool
    visible: torch.Tensor | None = None

    @property
    def tensors(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return queries, keys and values."""
        return self.query, self.key, self.value

    @property
    def has_cuda_flash(self) -> bool:
        """Return whether torch's flash kernels for CUDA take these tensors.

        torch's public attention pads narrower heads before it calls them, and asks the device.
        """
        device, width = self.query.device, self.query.shape[-1]
        if device.type != "cuda" or self.query.dtype not in _NARROW:
            return False
        is_wide_enough = width % _FLASH_HEAD_MULTIPLE == 0 and width <= _FLASH_HEAD_LIMIT
        return is_wide_enough and torch.cuda.get_device_capability(device) >= _FLASH_CAPABILITY


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """What queries gathered: the output, and the log-sum-exp of the scores that it is of."""

    out: torch.Tensor
    logsumexp: torch.Tensor


def attend(meeting: Meeting) -> Gathered:
    """Return what the queries gather."""
    flags = (0.0, meeting.is_causal)
    if meeting.visible is not None:
        return attend_by_scores(meeting)
    if meeting.query.device.type == "cpu":
        kernel = _ATEN._scaled_dot_product_flash_attention_for_cpu  # noqa: SLF001
    elif meeting.has_cuda_flash:
        kernel = _ATEN._scaled_dot_product_flash_attention  # noqa: SLF001
    else:
        return attend_by_scores(meeting)
    out, logsumexp, *_ = kernel(*meeting.tensors, *flags, scale=meeting.scale)
    return Gathered(out=out, logsumexp=logsumexp)


def attend_backward(meeting: Meeting, gathered: Gathered, gradient: torch.Tensor) -> Gradients:
    """Return the gradients of queries, keys and values, given that of the output.

    What was gathered may be of more keys than these: then the gradients are these keys' part.
    """
    arguments: list[Any] = [gradient, *meeting.tensors, gathered.out, gathered.logsumexp]
    flags = (0.0, meeting.is_causal)
    if meeting.visible is not None:
        return attend_by_scores_backward(meeting, gathered, gradient)
    if meeting.query.device.type == "cpu":
        kernel = _ATEN._scaled_dot_product_flash_attention_for_cpu_backward  # noqa: SLF001
        arguments += flags
    elif meeting.has_cuda_flash:
        kernel = _ATEN._scaled_dot_product_flash_attention_backward  # noqa: SLF001
        # Without packing it reads no offsets, and without dropout no random state.
        unused = torch.empty(0, dtype=torch.int64, device=gradient.device)
        lengths = (meeting.query.shape[2], meeting.key.shape[2])
        arguments += (None, None, *lengths, *flags, unused, unused)
    else:
        return attend_by_scores_backward(meeting, gathered, gradient)
    query, key, value = kernel(*arguments, scale=meeting.scale)
    return query, key, value


def attend_by_scores(meeting: Meeting) -> Gathered:
    """Return what the queries gather, by the matrix of scores in at least fp32.

    A query that sees no key gathers nothing, and its log-sum-exp is that of nothing.
    """
    scores = _scores(meeting)
    logsumexp = scores.logsumexp(dim=-1)
    weights = _weights(scores, logsumexp)
    out = (weights @ widened(meeting.value)).to(meeting.query.dtype)
    return Gathered(out=out, logsumexp=logsumexp)


def attend_by_scores_backward(
    meeting: Meeting, gathered: Gathered, gradient: torch.Tensor
) -> Gradients:
    """Return the gradients of queries, keys and values, by the matrix of scores in at least fp32.

        P = exp(scale Q K^T - l),  dV = P^T dO,  dS = P * (dO V^T - rowsum(dO * O)),
        dQ = scale dS K,  dK = scale dS^T Q

    Source: Dao 2023, arXiv:2307.08691, section 2.3.
    """
    query, key, value = (widened(tensor) for tensor in meeting.tensors)
    wide_gradient = widened(gradient)
    weights = _weights(_scores(meeting), gathered.logsumexp)
    shares = (wide_gradient * widened(gathered.out)).sum(dim=-1, keepdim=True)
    of_scores = weights * (wide_gradient @ value.transpose(-1, -2) - shares) * meeting.scale
    of_each = (
        of_scores @ key,
        of_scores.transpose(-1, -2) @ query,
        weights.transpose(-1, -2) @ wide_gradient,
    )
    first, second, third = (item.to(meeting.query.dtype) for item in of_each)
    return first, second, third


def default_scale(query: torch.Tensor) -> float:
    """Return 1 / sqrt(H), what torch multiplies scores by where nothing is said."""
    return 1.0 / math.sqrt(query.shape[-1])


def _scores(meeting: Meeting) -> torch.Tensor:
    product = widened(meeting.query) @ widened(meeting.key).transpose(-1, -2)
    scores = meeting.scale * product
    if meeting.visible is not None:
        scores = scores.masked_fill(~meeting.visible, -torch.inf)
    if not meeting.is_causal:
        return scores
    later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
    return scores.masked_fill(later, -torch.inf)


def _weights(scores: torch.Tensor, logsumexp: torch.Tensor) -> torch.Tensor:
    """Return e^(s - l), 0 where a query sees no key at all."""
    whole = logsumexp.masked_fill(logsumexp == -torch.inf, 0.0)
    return (scores - whole.unsqueeze(-1)).exp()
