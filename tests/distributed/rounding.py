"""Rounding: how far from fp64 a run comes that rounds, here and with this processor's kernels.

Runs of the unsharded model that sum in other orders, one for each size of micro-batches, are as far
from the exact one as rounding takes them. A layout may come four times as far as the farthest:

- They sum one kind of sum in another order, weights' gradients over tokens. A layout does so with
  up to four: these, what row-split products sum forward, what column-split ones sum backward, and
  the sums of norms. Roundings are as good as independent, so that errors add as squares: sqrt(4).
- What counts is the largest error of N numbers, which lies about s sqrt(2 ln N) with a spread of
  1 / (2 ln N) of that, as Gumbel's distribution has it. With N of ten thousand and more one in a
  million is 1 + 13.8 / 18.4 = 1.75 times as far, and the farthest of four is hardly ever below 1.

Of 20 layouts with three choices of kernels one came 1.7 times as far; a number that is kept in 16
bits anywhere comes a thousand times. Source: Higham and Mary 2019, doi:10.1137/18M1226312.

In fp64 rounding leaves a few 1e-15. A bar of 1e-12 is hundreds of times that on any processor, and
far below what one number in fp32 leaves (6e-8), let alone a fault. But for models that are in fp64
with parts in fp32: there 1e-15 may be the difference between rounding up and down.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from tests.distributed.reference import STEP_COUNT, floats_of, reference_run
from tests.distributed.state_tasks import unsharded

EXACT = 1e-12
# transformers' RMS norms are in fp32 whatever the model is in.
WITH_PARTS_IN_FP32 = {"llama", "qwen2", "qwen3", "mistral", "mixtral", "qwen3_moe"}
MICRO_BATCH_SIZES = (1, 2, 4, 8)
TIMES_AS_FAR = 4.0
# Losses are summed in fp32 over at most 8 micro-batches and 4 ranks: 2^-24 for each addition.
SUMMED_LOSS = 12 * 2.0**-24


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """How far from the exact run losses, first gradients and trained parameters may be."""

    loss: float
    gradient: float
    parameter: float


def bars(kind: str, precision: str = "fp32") -> Bars:
    """Return the bars of runs that keep the floats of the moment and compute in `precision`."""
    is_fp64 = torch.get_default_dtype() is torch.float64
    if is_fp64 and kind.partition("-")[0] not in WITH_PARTS_IN_FP32:
        return Bars(loss=EXACT, gradient=EXACT, parameter=EXACT)
    return bars_of_fp32(kind, precision)


@functools.cache
def bars_of_fp32(kind: str, precision: str = "fp32") -> Bars:
    """Return the bars of runs that keep fp32, in whole or in parts."""
    exact = reference_run(kind, drawn_bits=32)
    with floats_of(32):
        runs = [
            unsharded(
                kind=kind,
                precision=precision,
                largest_norm=None,
                micro_batch_size=size,
                steps=STEP_COUNT,
            )
            for size in MICRO_BATCH_SIZES
        ]
    return Bars(
        loss=SUMMED_LOSS + TIMES_AS_FAR * max(loss_error(run.losses, exact.losses) for run in runs),
        gradient=TIMES_AS_FAR
        * max(largest_error(run.first_gradients, exact.first_gradients) for run in runs),
        parameter=TIMES_AS_FAR
        * max(largest_error(run.parameters, exact.parameters) for run in runs),
    )


def loss_error(losses: list[float], expected: list[float]) -> float:
    """Return the largest relative difference of two runs' losses."""
    return max(abs(loss / wanted - 1.0) for loss, wanted in zip(losses, expected, strict=True))


def largest_error(
    tensors: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]
) -> float:
    """Return the largest relative difference of any tensor."""
    return max(relative_error(value, expected[name]) for name, value in tensors.items())


def relative_error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest difference relative to the largest expected magnitude."""
    # transformers has two matrices of an expert in one.
    difference = actual - expected.view_as(actual)
    return float(difference.abs().max() / expected.abs().max())
