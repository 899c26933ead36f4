"""Bounds: numbers that no plan of a configuration can beat, cheap before dear.

With objective S + (m - 1) T + U (S = sum of stage paces, T their largest, U the largest step end),
and omega = (m - 1) tau + u of a layer:

B1. (m - 1) T + U >= max_r ((m - 1) t_r + u_r), since both maxima are at least each stage's own.
B2. A maximum over stages is at least their average, and at least what the stage with ceil(L / p)
    blocks takes with the cheapest choice.
B3. For lambda >= 0, any feasible stage with counts a has
    sum omega >= sum_k a_k min_s (omega + lambda mem) - lambda (cap - fixed - least transient),
    because the price lambda is paid on a constraint that holds (weak duality). The largest over a
    grid of lambda is phi_r(a), which grows with a.
B4. Some W keeps every stage's phi_r <= W and all layers placed, one on each stage at least; the
    least such W is a lower bound. With one run of blocks it is the L-th smallest of all phi_r(n),
    n >= 1, and no less than any phi_r(1). With several, stages are filled in order, each as far
    along the chain as it can: any plan's cuts lie at or before these (exchange argument), so a W
    at which this greedy falls short is a lower bound; it is found by bisection.
B5. S >= sum_r phi_r(a_r) in tau alone. phi_r is convex in n, so with one run the least sum over
    all splits is sum_r phi_r(1) and the L - p smallest increments. With several, each layer takes
    its cheapest pace, priced with one lambda over all stages' memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost.configuration import Configurations, Floats
from planner.cost.layer_costs import CostTable
from planner.ilp.duals import (
    PricedChain,
    cost_chain,
    least_transient,
    memory_chain,
    price_grid,
)
from planner.ilp.instance import Instance, Run
from planner.ilp.levels import Levels, chain_levels

_NO_HOST = np.zeros(1)
_HOST_RATIOS = np.array([0.0, *(2.0**e for e in range(-4, 7))])


def quick_bounds(table: CostTable, configurations: Configurations) -> Floats:
    """Return B1 and B2 without memory for every configuration, [configurations]."""
    stages = configurations.pipeline_parallel_degree.astype(np.float64)
    rest = configurations.micro_batch_count.astype(np.float64) - 1.0
    boundaries = 2.0 * (stages - 1.0) * table.fixed.boundary_seconds[:, 0, -1]
    layers = [(table.embedding, 1), *zip(table.blocks, table.block_counts, strict=True)]
    layers.append((table.head, 1))
    pace_sum, both_sum = boundaries.copy(), rest * boundaries
    for costs, count in layers:
        pace = costs.micro_batch_seconds.total()
        both = rest[:, None] * pace + costs.step_end_seconds.total()
        pace_sum += count * pace.min(axis=1)
        both_sum += count * both.min(axis=1)
    largest = _largest_stage(table, stages, rest)
    end = table.fixed.step_end_seconds
    bounds: Floats = pace_sum + np.maximum(both_sum / stages, largest) + end
    return bounds


def _largest_stage(table: CostTable, stages: Floats, rest: Floats) -> Floats:
    """Return omega of ceil(L / p) blocks of the cheapest kind, [configurations]."""
    blocks = float(sum(table.block_counts))
    cheapest = np.full(len(stages), np.inf)
    for costs in table.blocks:
        both = rest[:, None] * costs.micro_batch_seconds.total() + costs.step_end_seconds.total()
        cheapest = np.minimum(cheapest, both.min(axis=1))
    one_boundary = np.where(stages > 1.0, rest * table.fixed.boundary_seconds[:, 0, -1], 0.0)
    largest: Floats = np.ceil(blocks / stages) * cheapest + one_boundary
    return largest


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveBounds:
    """Lower bounds of the parts of a step: S, T, U, and (m - 1) T + U together, in seconds."""

    pace_sum: float
    slowest_pace: float
    largest_end: float
    both: float

    def step_seconds(self, *, micro_batch_count: int) -> float:
        """Return the bound of S + (m - 1) T + U."""
        apart = (micro_batch_count - 1) * self.slowest_pace + self.largest_end
        return self.pace_sum + max(apart, self.both)


def memory_bound(instance: Instance) -> float:
    """Return B3, B4 and B5 together: inf when no plan fits."""
    bounds = objective_bounds(instance)
    if bounds is None:
        return float("inf")
    return bounds.step_seconds(micro_batch_count=instance.micro_batch_count)


def objective_bounds(instance: Instance) -> ObjectiveBounds | None:
    """Return B3, B4 and B5 of each part, None when no plan fits."""
    memory, limit = device_and_host(instance)
    if not _levels(memory).reaches(limit):
        return None
    paces = _levels(pace_chain(instance))
    ends = sum(run.count * float(run.end.min()) for run in instance.runs)
    return ObjectiveBounds(
        pace_sum=max(paces.least_sum(), _pooled_pace_sum(instance)),
        slowest_pace=paces.least_level(),
        largest_end=instance.stage_end + ends / instance.stage_count,
        both=_levels(both_chain(instance)).least_level(),
    )


def least_memory_bytes(instance: Instance) -> float:
    """Return the least peak bytes on the fullest device over all choices and splits (B4).

    Host memory is taken to be boundless.
    """
    return _levels(memory_chain(instance, _NO_HOST, spare=_NO_HOST)).least_level()


def pace_chain(instance: Instance) -> PricedChain:
    """Return the paces with memory priced: no stage's may exceed T."""
    return cost_chain(instance, [run.pace for run in instance.runs], instance.stage_pace)


def both_chain(instance: Instance) -> PricedChain:
    """Return omega with memory priced: no stage's may exceed (m - 1) T + U."""
    rest = instance.micro_batch_count - 1
    both = [rest * run.pace + run.end for run in instance.runs]
    return cost_chain(instance, both, rest * instance.stage_pace + instance.stage_end)


def device_and_host(instance: Instance) -> tuple[PricedChain, float]:
    """Return device bytes with a price on host bytes, and what no stage may exceed.

    For any ratio of the two prices, a stage that keeps both limits keeps their priced sum. All
    ratios are held against the largest limit; `spare` is what others lack to it.
    """
    ratios = _HOST_RATIOS * instance.capacity_bytes / max(instance.host_capacity_bytes, 1.0)
    limits = instance.capacity_bytes + ratios * instance.host_capacity_bytes
    largest = float(limits.max())
    return memory_chain(instance, ratios, spare=largest - limits), largest


def _levels(chain: PricedChain) -> Levels:
    return chain_levels(chain.layers(), chain.offset)


def _pooled_pace_sum(instance: Instance) -> float:
    """Return B5 for several runs: a lower bound of the sum of stage paces."""
    grid = price_grid(instance, [run.pace for run in instance.runs])
    slack = instance.capacity_bytes - instance.stage_bytes - least_transient(instance)
    total = float(instance.stage_pace.sum()) - grid * float(slack.sum())
    for run in instance.runs:
        total = total + run.count * _least_price(run, grid, instance)
    return float(np.max(total))


def _least_price(run: Run, grid: Floats, instance: Instance) -> Floats:
    """Return min over choices of pace + lambda mem at the stage that needs least, [grid]."""
    if run.pinned_stage is None:
        flight = min(instance.in_flight)
    else:
        flight = instance.in_flight[run.pinned_stage]
    memory = run.memory(flight)
    priced: Floats = (run.pace[None, :] + grid[:, None] * memory[None, :]).min(axis=1)
    return priced
