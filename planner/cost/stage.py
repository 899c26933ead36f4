"""Stage: the sums over the layers that one pipeline rank holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from planner.cost.configuration import Floats
from planner.cost.holdings import Holding, peak_activation_bytes
from planner.cost.layer_costs import LayerCosts, MemoryLimits, MicroBatchSeconds, StepEndSeconds
from planner.cost.schedule import BoundaryShares, FillWeights
from planner.cost.simulate import VirtualStageSeconds
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
    """One exchange with a neighbour: seconds per micro-batch, and what the rank keeps for it.

    `sent_bytes` are per micro-batch in flight, `buffer_bytes` there throughout.
    """

    seconds: float
    sent_bytes: float
    buffer_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSchedule:
    """What the schedule makes of one rank.

    `in_flight` counts micro-batches of all that the rank holds, `holdings` by its virtual stages.
    """

    weights: FillWeights
    shares: BoundaryShares
    in_flight: float
    holdings: tuple[Holding, ...]

    def kept_bytes(self, kept: Sequence[float]) -> float:
        """Return the bytes of activations at the peak, from those of each virtual stage.

        `in_flight` is enough unless earlier virtual stages keep more than later ones.
        """
        return max(self.in_flight * sum(kept), peak_activation_bytes(self.holdings, kept))


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
    held: Sequence[Sequence[HeldLayers]],
    boundaries: Sequence[Boundary],
    *,
    schedule: RankSchedule,
    step_end_seconds: float,
    limits: MemoryLimits,
) -> StageTotals:
    """Return what the rank that holds `held` takes; costs are of one configuration, [1, choices].

    `held` is by virtual stage.
    """
    every = [layers for stage in held for layers in stage]
    micro_batch = {
        name: sum(h.count * _at(h.costs.micro_batch_seconds, name, h.choice) for h in every)
        for name in _MICRO_BATCH_PARTS
    }
    exchange = sum(boundary.seconds for boundary in boundaries)
    paced = schedule.shares.pace * exchange
    micro_batch["pipeline_point_to_point"] += paced
    step_end = {
        name: sum(h.count * _at(h.costs.step_end_seconds, name, h.choice) for h in every)
        for name in _STEP_END_PARTS
    }
    step_end["optimizer"] += step_end_seconds
    fill = sum(h.count * _fill_seconds(h, schedule.weights) for h in every)
    buffers = sum(schedule.in_flight * b.sent_bytes + b.buffer_bytes for b in boundaries)
    kept = [_sum_bytes(stage, "activations") for stage in held]
    return StageTotals(
        micro_batch_seconds=micro_batch,
        forward_seconds=sum(_forward_seconds(h) for h in every) + paced / 2.0,
        fill_seconds=fill + schedule.shares.fill * exchange,
        step_end_seconds=step_end,
        memory=_memory(every, limits, activations=schedule.kept_bytes(kept), boundary=buffers),
        host_bytes=_sum_bytes(every, "host")
        + schedule.in_flight * _sum_bytes(every, "host_activations"),
    )


def virtual_stage_seconds(held: Sequence[HeldLayers]) -> VirtualStageSeconds:
    """Return the forward, input-gradient and weight-gradient seconds of one micro-batch."""
    parts = [_split_seconds(h) for h in held]
    counts = [h.count for h in held]
    forward, inputs, weights = (
        sum(count * part[place] for count, part in zip(counts, parts, strict=True))
        for place in range(3)
    )
    return VirtualStageSeconds(forward=forward, input_gradient=inputs, weight_gradient=weights)


def _fill_seconds(held: HeldLayers, weights: FillWeights) -> float:
    """Return what one layer adds to the fill and drain."""
    return weights.of_one(*_split_seconds(held))


def _split_seconds(held: HeldLayers) -> tuple[float, float, float]:
    """Return one layer's seconds of forward, of inputs' gradients and of weights' gradients."""
    seconds = held.costs.micro_batch_seconds
    total = sum(_at(seconds, name, held.choice) for name in _MICRO_BATCH_PARTS)
    forward = total * _at(seconds, "forward_share", held.choice)
    weight_gradient = total * _at(seconds, "weight_gradient_share", held.choice)
    return forward, total - forward - weight_gradient, weight_gradient


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
    held: Sequence[HeldLayers], limits: MemoryLimits, *, activations: float, boundary: float
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
    live = sum(parts.values()) + activations + transient
    return MemoryBreakdown(
        **parts,
        activations=activations,
        logits=logits,
        workspace=transient - logits,
        runtime=limits.runtime_bytes + limits.slack_ratio * live,
    )
