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

import numpy as np

from planner.cost.configuration import Configurations, Floats
from planner.cost.layer_costs import CostTable
from planner.ilp.instance import Instance, Run
from planner.ilp.levels import Levels, chain_levels

_NO_HOST = np.zeros(1)
_HOST_RATIOS = np.array([0.0, *(2.0**e for e in range(-4, 7))])
_MULTIPLIERS = np.array([0.0, *(2.0**e for e in range(-6, 8))])


def quick_bounds(table: CostTable, configurations: Configurations) -> Floats:
    """Return B1 and B2 without memory for every configuration, [configurations]."""
    stages = configurations.pipeline_parallel_degree.astype(np.float64)
    rest = configurations.micro_batch_count.astype(np.float64) - 1.0
    boundaries = 2.0 * (stages - 1.0) * table.fixed.boundary_seconds
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
    one_boundary = np.where(stages > 1.0, rest * table.fixed.boundary_seconds, 0.0)
    largest: Floats = np.ceil(blocks / stages) * cheapest + one_boundary
    return largest


def memory_bound(instance: Instance) -> float:
    """Return B3, B4 and B5 together: inf when no plan fits."""
    if not _fits_at_all(instance):
        return float("inf")
    rest = instance.micro_batch_count - 1
    both = [rest * run.pace + run.end for run in instance.runs]
    widest = _priced(instance, both, rest * instance.stage_pace + instance.stage_end).least_level()
    paces = _priced(instance, [run.pace for run in instance.runs], instance.stage_pace)
    ends = sum(run.count * float(run.end.min()) for run in instance.runs)
    least_end = instance.stage_end + ends / instance.stage_count
    least_sum = max(paces.least_sum(), _pooled_pace_sum(instance))
    return least_sum + max(rest * paces.least_level() + least_end, widest)


def least_memory_bytes(instance: Instance) -> float:
    """Return the least peak bytes on the fullest device over all choices and splits (B4).

    Host memory is taken to be boundless.
    """
    return _memory_levels(instance, _NO_HOST, spare=_NO_HOST).least_level()


def _fits_at_all(instance: Instance) -> bool:
    """Return False only if no choices fit: B4 with a price on host memory beside the device's.

    For any ratio of the two prices, a stage that keeps both limits keeps their priced sum. All
    ratios are held against the largest limit; `spare` is what others lack to it.
    """
    ratios = _HOST_RATIOS * instance.capacity_bytes / max(instance.host_capacity_bytes, 1.0)
    limits = instance.capacity_bytes + ratios * instance.host_capacity_bytes
    largest = float(limits.max())
    return _memory_levels(instance, ratios, spare=largest - limits).reaches(largest)


def _memory_levels(instance: Instance, host_ratios: Floats, *, spare: Floats) -> Levels:
    """Return device bytes + ratio x host bytes of every layer, over `spare`, both [ratios]."""
    costs = []
    for run in instance.runs:
        memory = np.stack([run.memory(flight) for flight in instance.in_flight])
        costs.append(memory[:, None, :] + host_ratios[None, :, None] * run.host)
    base = instance.stage_bytes + _least_transient(instance)
    return _levels(instance, costs, base[:, None] + spare[None, :])


def _priced(instance: Instance, costs: list[Floats], base: Floats) -> Levels:
    """Return cost + lambda x memory of every layer, on a grid of lambda."""
    prices = _prices(instance, costs)
    slack = instance.capacity_bytes - instance.stage_bytes - _least_transient(instance)
    priced = []
    for run, cost in zip(instance.runs, costs, strict=True):
        memory = np.stack([run.memory(f) for f in instance.in_flight])
        priced.append(cost[None, None, :] + prices[None, :, None] * memory[:, None, :])
    return _levels(instance, priced, base[:, None] - prices[None, :] * slack[:, None])


def _levels(instance: Instance, costs: list[Floats], base: Floats) -> Levels:
    """Return levels of `costs` by run, each [stages, prices, choices], over `base`."""
    offset = base.copy()
    layers: list[tuple[int, Floats]] = []
    for run, cost in zip(instance.runs, costs, strict=True):
        least = cost.min(axis=2)
        if run.pinned_stage is None:
            layers.append((run.count, least))
        else:
            offset[run.pinned_stage] += least[run.pinned_stage]
    return chain_levels(layers, offset)


def _least_transient(instance: Instance) -> Floats:
    """Return the least transient bytes of each stage, [stages].

    Every stage holds a block, and its transient is at least the least of any block; stages with
    the embedding or the head have those transients too.
    """
    block = min(float(run.transient.min()) for run in instance.runs if run.pinned_stage is None)
    least = np.full(instance.stage_count, block)
    for run in instance.runs:
        if run.pinned_stage is not None:
            own = float(run.transient.min())
            least[run.pinned_stage] = max(least[run.pinned_stage], own)
    return least


def _prices(instance: Instance, costs: list[Floats]) -> Floats:
    """Return the grid of lambda: multiples of the chain's cost range over its memory range."""
    cost_range = memory_range = 0.0
    flight = max(instance.in_flight)
    for run, cost in zip(instance.runs, costs, strict=True):
        memory = run.memory(flight)
        cost_range += run.count * float(cost.max() - cost.min())
        memory_range += run.count * float(memory.max() - memory.min())
    scale = cost_range / memory_range if memory_range > 0.0 else 0.0
    return scale * _MULTIPLIERS if scale > 0.0 else np.zeros(1)


def _pooled_pace_sum(instance: Instance) -> float:
    """Return B5 for several runs: a lower bound of the sum of stage paces."""
    prices = _prices(instance, [run.pace for run in instance.runs])
    slack = instance.capacity_bytes - instance.stage_bytes - _least_transient(instance)
    total = float(instance.stage_pace.sum()) - prices * float(slack.sum())
    for run in instance.runs:
        total = total + run.count * _least_price(run, prices, instance)
    return float(np.max(total))


def _least_price(run: Run, prices: Floats, instance: Instance) -> Floats:
    """Return min over choices of pace + lambda mem at the stage that needs least, [prices]."""
    if run.pinned_stage is None:
        flight = min(instance.in_flight)
    else:
        flight = instance.in_flight[run.pinned_stage]
    memory = run.memory(flight)
    priced: Floats = (run.pace[None, :] + prices[:, None] * memory[None, :]).min(axis=1)
    return priced
