"""Stage: the sums over the layers that one pipeline rank holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike

from planner.cost.configuration import Floats
from planner.cost.layer_costs import LayerCosts, MemoryLimits, MicroBatchSeconds, StepEndSeconds
from planner.cost.schedule import FillWeights
from planner.schema.plan import MemoryBreakdown

_SHARES = ("forward_share", "weight_gradient_share")
_MICRO_BATCH_PARTS = tuple(
    field.name for field in fields(MicroBatchSeconds) if field.name not in _SHARES
)
_STEP_END_PARTS = tuple(field.name for field in fields(StepEndSeconds))


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLayers:
    """`count` equal layers that a rank holds: priced by `costs` under the choice at `choice`."""

    costs: LayerCosts
    choice: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """One exchange with a neighbour: seconds per micro-batch, bytes per micro-batch in flight."""

    seconds: float
    bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTotals:
    """Seconds and bytes of one pipeline rank. `memory` sums to the peak."""

    micro_batch_seconds: dict[str, float]
    forward_seconds: float
    fill_seconds: float
    step_end_seconds: dict[str, float]
    memory: MemoryBreakdown
    host_bytes: float

    @property
    def pace_seconds(self) -> float:
        """Return t_r: the rank's seconds per micro-batch."""
        return sum(self.micro_batch_seconds.values())

    @property
    def end_seconds(self) -> float:
        """Return u_r: the rank's seconds once a step."""
        return sum(self.step_end_seconds.values())


def stage_totals(
    held: Sequence[HeldLayers],
    boundaries: Sequence[Boundary],
    *,
    weights: FillWeights,
    step_end_seconds: float,
    in_flight: float,
    limits: MemoryLimits,
) -> StageTotals:
    """Return what the rank that holds `held` takes; costs are of one configuration, [1, choices].

    `in_flight` counts micro-batches of all that it holds.
    """
    micro_batch = {
        name: sum(h.count * _at(h.costs.micro_batch_seconds, name, h.choice) for h in held)
        for name in _MICRO_BATCH_PARTS
    }
    exchange = sum(boundary.seconds for boundary in boundaries)
    micro_batch["pipeline_point_to_point"] += exchange
    step_end = {
        name: sum(h.count * _at(h.costs.step_end_seconds, name, h.choice) for h in held)
        for name in _STEP_END_PARTS
    }
    step_end["data_parallel_exposed"] += step_end_seconds
    fill = sum(h.count * fill_seconds(h.costs, weights)[0, h.choice] for h in held)
    fill += sum(boundary_fill_seconds(boundary.seconds, weights) for boundary in boundaries)
    buffers = in_flight * sum(boundary.bytes for boundary in boundaries)
    return StageTotals(
        micro_batch_seconds=micro_batch,
        forward_seconds=sum(_forward_seconds(h) for h in held) + exchange / 2.0,
        fill_seconds=float(fill),
        step_end_seconds=step_end,
        memory=_memory(held, limits, in_flight=in_flight, boundary=buffers),
        host_bytes=_sum_bytes(held, "host") + in_flight * _sum_bytes(held, "host_activations"),
    )


def fill_seconds(costs: LayerCosts, weights: FillWeights) -> Floats:
    """Return what one layer adds to the fill and drain, [configurations, choices]."""
    seconds = costs.micro_batch_seconds
    total = seconds.total()
    forward = total * seconds.forward_share
    weight_gradient = total * seconds.weight_gradient_share
    return weights.of(forward, total - forward - weight_gradient, weight_gradient)


def boundary_fill_seconds(seconds: ArrayLike, weights: FillWeights) -> Floats:
    """Return what one boundary adds to the fill: half goes forward, half back with gradients."""
    half = 0.5 * np.asarray(seconds, dtype=np.float64)
    return weights.of(half, half, np.zeros_like(half))


def _at(part: object, name: str, choice: int) -> float:
    values: Floats = getattr(part, name)
    return float(values[0, choice])


def _forward_seconds(held: HeldLayers) -> float:
    seconds = held.costs.micro_batch_seconds
    total = sum(_at(seconds, name, held.choice) for name in _MICRO_BATCH_PARTS)
    return held.count * total * float(seconds.forward_share[0, held.choice])


def _sum_bytes(held: Sequence[HeldLayers], name: str) -> float:
    return sum(h.count * _at(h.costs.bytes, name, h.choice) for h in held)


def _memory(
    held: Sequence[HeldLayers], limits: MemoryLimits, *, in_flight: float, boundary: float
) -> MemoryBreakdown:
    """Return the peak by cause: what is always held, activations in flight, largest transient."""
    largest = max(held, key=lambda h: _at(h.costs.bytes, "transient", h.choice))
    transient = _at(largest.costs.bytes, "transient", largest.choice)
    logits = _at(largest.costs.bytes, "logits", largest.choice)
    parts = {
        name: _sum_bytes(held, name)
        for name in ("parameters", "gradients", "optimizer", "communication_buffers")
    }
    parts["communication_buffers"] += boundary
    activations = in_flight * _sum_bytes(held, "activations")
    live = sum(parts.values()) + activations + transient
    return MemoryBreakdown(
        **parts,
        activations=activations,
        logits=logits,
        workspace=transient - logits,
        runtime=limits.runtime_bytes + limits.slack_ratio * live,
    )
