"""Heuristic: good assignments in microseconds, so that the search has something to prune with."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from planner.cost.configuration import Floats
from planner.ilp.instance import Counts, Instance, evaluate, fits

_MULTIPLIERS = (0.0, *(2.0**e for e in range(-6, 8)))


def heuristic_counts(instance: Instance) -> tuple[float, Counts] | None:
    """Return the best step found with its counts, or None where nothing tried fits.

    For prices of memory from nothing to prohibitive, each stage takes the choice that is cheapest
    at that price; blocks are split evenly, and with room left for the embedding and the head.
    """
    best: tuple[float, Counts] | None = None
    for price in _prices(instance):
        chosen = _cheapest_choices(instance, price)
        for split in _splits(instance, chosen):
            counts = _counts(instance, chosen, split)
            evaluation = evaluate(instance, counts)
            if fits(instance, evaluation) and (best is None or evaluation.step_seconds < best[0]):
                best = (evaluation.step_seconds, counts)
    return best


def _prices(instance: Instance) -> Floats:
    """Return prices of a byte, as multiples of the blocks' cost range over their memory range."""
    scale = 0.0
    for k in instance.block_runs:
        run = instance.runs[k]
        cost = instance.micro_batch_count * run.pace + run.end
        memory = run.memory(max(instance.in_flight))
        spread = float(memory.max() - memory.min())
        if spread > 0.0:
            scale = max(scale, float(cost.max() - cost.min()) / spread)
    return scale * np.array(_MULTIPLIERS) if scale > 0.0 else np.zeros(1)


def _cheapest_choices(instance: Instance, price: float) -> NDArray[np.int64]:
    """Return the choice of each stage and run at a price of memory, [stages, runs]."""
    chosen = np.zeros((instance.stage_count, len(instance.runs)), dtype=np.int64)
    for k, run in enumerate(instance.runs):
        cost = instance.micro_batch_count * run.pace + run.end
        for r, flight in enumerate(instance.in_flight):
            held = run.memory(flight) + run.transient / max(run.count, 1)
            chosen[r, k] = int(np.argmin(cost + price * (held + run.host * 1e-3)))
    return chosen


def _splits(instance: Instance, chosen: NDArray[np.int64]) -> Iterator[tuple[int, ...]]:
    """Yield how many blocks each stage takes: evenly, and by the pace left beside the edges."""
    total = sum(instance.runs[k].count for k in instance.block_runs)
    stages = instance.stage_count
    even = tuple(total // stages + (1 if r < total % stages else 0) for r in range(stages))
    yield even
    if stages == 1:
        return
    yield even[::-1]
    k = instance.block_runs[0]
    block = float(instance.runs[k].pace[chosen[0, k]])
    edges = np.zeros(stages)
    for k, run in enumerate(instance.runs):
        if run.pinned_stage is not None:
            edges[run.pinned_stage] += float(run.pace[chosen[run.pinned_stage, k]])
    if block > 0.0:
        yield _balanced(total, edges / block)


def _balanced(total: int, taken: Floats) -> tuple[int, ...]:
    """Return blocks by stage such that blocks + `taken` (in blocks) are as level as can be."""
    held = np.ones(len(taken), dtype=np.int64)
    for _ in range(total - len(taken)):
        held[int(np.argmin(held + taken))] += 1
    return tuple(int(count) for count in held)


def _counts(instance: Instance, chosen: NDArray[np.int64], split: tuple[int, ...]) -> Counts:
    """Return the counts that place the chain in order by `split`, blocks taken run after run."""
    counts = tuple(
        np.zeros((instance.stage_count, len(run.choice)), dtype=np.int64) for run in instance.runs
    )
    left = {k: instance.runs[k].count for k in instance.block_runs}
    for r, room in enumerate(split):
        for k in instance.block_runs:
            taken = min(room, left[k])
            counts[k][r, chosen[r, k]] += taken
            left[k] -= taken
            room -= taken  # noqa: PLW2901
    for k, run in enumerate(instance.runs):
        if run.pinned_stage is not None:
            counts[k][run.pinned_stage, chosen[run.pinned_stage, k]] = 1
    return counts
