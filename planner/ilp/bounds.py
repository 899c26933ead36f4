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
B4. If every stage keeps phi_r <= W, then filling stages in order, each as far along the chain as it
    can, places all layers: taking more early never hurts, since phi of what is left only shrinks.
    So a W at which this greedy fails is a lower bound; it is found by bisection.
B5. S >= sum over layers of the cheapest pace, priced with one lambda over all stages' memory.
"""

from __future__ import annotations

import numpy as np

from planner.cost.configuration import Configurations, Floats
from planner.cost.layer_costs import CostTable
from planner.ilp.instance import Instance, Run

_BISECTIONS = 50
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
    rest = instance.micro_batch_count - 1
    both = [rest * run.pace + run.end for run in instance.runs]
    base_both = rest * instance.stage_pace + instance.stage_end
    widest = _least_reachable(instance, both, base_both)
    if not np.isfinite(widest):
        return float("inf")
    pace = _least_reachable(instance, [run.pace for run in instance.runs], instance.stage_pace)
    ends = sum(run.count * float(run.end.min()) for run in instance.runs)
    least_end = instance.stage_end + ends / instance.stage_count
    return _least_pace_sum(instance) + max(rest * pace + least_end, widest)


def _slack_bytes(instance: Instance) -> Floats:
    """Return what stages have left for static and activation bytes at best, [stages].

    Every stage holds a block, and its transient is at least the least of any block; stages with
    the embedding or the head have those transients too.
    """
    block = min(float(run.transient.min()) for run in instance.runs if run.pinned_stage is None)
    least = np.full(instance.stage_count, block)
    for run in instance.runs:
        if run.pinned_stage is not None:
            own = float(run.transient.min())
            least[run.pinned_stage] = max(least[run.pinned_stage], own)
    slack: Floats = instance.capacity_bytes - instance.stage_bytes - least
    return slack


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


def _least_reachable(instance: Instance, costs: list[Floats], base: Floats) -> float:
    """Return a W below the largest stage cost of every feasible plan (B4), inf without any."""
    slack = _slack_bytes(instance)
    if not _fits_at_all(instance, slack, _HOST_RATIOS):
        return float("inf")
    prices = _prices(instance, costs)
    offset = base[:, None] - prices[None, :] * slack[:, None]
    chain = _Chain.priced(instance, costs, prices=prices, offset=offset)
    high = chain.largest()
    low = 0.0
    if chain.reaches(low):
        return low
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        if chain.reaches(middle):
            high = middle
        else:
            low = middle
    return low


class _Chain:
    """The chain's layers priced by stage and lambda: prefix sums [stages, prices, layers + 1]."""

    def __init__(self, prefix: Floats, offset: Floats) -> None:
        self._prefix = prefix
        self._offset = offset

    @staticmethod
    def priced(
        instance: Instance, costs: list[Floats], *, prices: Floats, offset: Floats
    ) -> _Chain:
        """Return the chain with pinned layers' prices in the offset of their stage.

        Costs are [choices] or [prices, choices], the offset [stages, prices].
        """
        stages, offset, steps = instance.stage_count, offset.copy(), []
        for run, cost in zip(instance.runs, costs, strict=True):
            memory = np.stack([run.memory(f) for f in instance.in_flight])
            price = (cost + prices[None, :, None] * memory[:, None, :]).min(axis=2)
            if run.pinned_stage is None:
                steps.append(np.repeat(price[:, :, None], run.count, axis=2))
            else:
                offset[run.pinned_stage] += price[run.pinned_stage]
        layers = np.concatenate(steps, axis=2)
        prefix = np.zeros((stages, len(prices), layers.shape[2] + 1))
        np.cumsum(layers, axis=2, out=prefix[:, :, 1:])
        return _Chain(prefix, offset)

    def largest(self) -> float:
        """Return what one stage with all layers would cost at most."""
        return float(np.max(self._prefix[:, :, -1] + np.abs(self._offset))) + 1e-30

    def reaches(self, limit: float) -> bool:
        """Return whether stages filled greedily to `limit` hold all layers, one each at least."""
        stages, prices, length = self._prefix.shape
        placed, total = 0, int(length) - 1
        for stage in range(stages):
            room = total - placed - (stages - 1 - stage)
            end = placed + room
            for price in range(prices):
                prefix = self._prefix[stage, price]
                allowed = limit - self._offset[stage, price] + prefix[placed]
                allowed += 1e-12 * (abs(limit) + abs(float(prefix[placed])))
                end = min(end, int(np.searchsorted(prefix, allowed, "right")) - 1)
            if end <= placed:
                return False
            placed = end
        return placed >= total


def _fits_at_all(instance: Instance, slack: Floats, host_ratios: Floats) -> bool:
    """Return False only if no choices fit: B4 with a price on host memory beside the device's.

    For any ratio of the two prices, a stage that keeps both limits keeps their priced sum.
    """
    host_capacity = max(instance.host_capacity_bytes, 1.0)
    ratios = host_ratios * max(instance.capacity_bytes, 1.0) / host_capacity
    chain = _Chain.priced(
        instance,
        [ratios[:, None] * run.host[None, :] for run in instance.runs],
        prices=np.ones_like(ratios),
        offset=-slack[:, None] - ratios[None, :] * instance.host_capacity_bytes,
    )
    return chain.reaches(0.0)


def _least_pace_sum(instance: Instance) -> float:
    """Return B5: a lower bound of the sum of stage paces."""
    prices = _prices(instance, [run.pace for run in instance.runs])
    total = float(instance.stage_pace.sum()) - prices * float(_slack_bytes(instance).sum())
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


def least_memory_bytes(instance: Instance) -> float:
    """Return the least peak bytes on the fullest device over all choices and splits.

    Host memory is taken to be boundless. Found to a thousandth by doubling and bisection over the
    capacity at which the leanest choices just fit.
    """
    fixed = _slack_bytes(instance) - instance.capacity_bytes
    low, high = 0.0, max(instance.capacity_bytes, 1.0)
    while not _fits_at_all(instance, fixed + high, _NO_HOST):
        low, high = high, 2.0 * high
    while high - low > 1e-3 * high:
        middle = 0.5 * (low + high)
        if _fits_at_all(instance, fixed + middle, _NO_HOST):
            high = middle
        else:
            low = middle
    return high
