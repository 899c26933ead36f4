"""Rounding: how far from fp64 a run comes that rounds, here and with this processor's kernels.

Runs of the unsharded model that sum in other orders, one for each size of micro-batches, are as far
from the exact one as rounding takes them. A layout rounds as often as they do, and sums in one more
order: it may come four times as far as the farthest of them. Of 20 layouts with three choices of
kernels one came 1.7 times as far; a number that is kept in 16 bits anywhere comes a thousand times.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from tests.distributed.reference import STEP_COUNT, floats_of, reference_run
from tests.distributed.state_tasks import unsharded

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


@functools.cache
def bars(kind: str, precision: str) -> Bars:
    """Return the bars of runs that keep fp32 and compute in `precision`."""
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
