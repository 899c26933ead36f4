"""Stage: the sums over the layers that one pipeline rank holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from planner.cost.figures import LayerFigures
from planner.cost.holdings import Holding, peak_activation_bytes
from planner.cost.layer_costs import MemoryLimits
from planner.cost.schedule import BoundaryShares, FillWeights
from planner.cost.simulate import VirtualStageSeconds
from planner.schema.plan import MemoryBreakdown


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLayers:
    """`count` equal layers that a rank holds, and what one of them takes."""

    figures: LayerFigures
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
    """Return what the rank that holds `held`, by virtual stage, takes."""
    every = [layers for stage in held for layers in stage]
    micro_batch = _sums([(h.count, h.figures.micro_batch_seconds) for h in every])
    exchange = sum(boundary.seconds for boundary in boundaries)
    paced = schedule.shares.pace * exchange
    micro_batch["pipeline_point_to_point"] += paced
    step_end = _sums([(h.count, h.figures.step_end_seconds) for h in every])
    step_end["optimizer"] += step_end_seconds
    fill = sum(h.count * schedule.weights.of_one(*h.figures.split_seconds) for h in every)
    buffers = sum(schedule.in_flight * b.sent_bytes + b.buffer_bytes for b in boundaries)
    kept = [_sum_bytes(stage, "activations") for stage in held]
    return StageTotals(
        micro_batch_seconds=micro_batch,
        forward_seconds=sum(h.count * h.figures.split_seconds[0] for h in every) + paced / 2.0,
        fill_seconds=fill + schedule.shares.fill * exchange,
        step_end_seconds=step_end,
        memory=_memory(every, limits, activations=schedule.kept_bytes(kept), boundary=buffers),
        host_bytes=_sum_bytes(every, "host")
        + schedule.in_flight * _sum_bytes(every, "host_activations"),
    )


def virtual_stage_seconds(held: Sequence[HeldLayers]) -> VirtualStageSeconds:
    """Return the forward, input-gradient and weight-gradient seconds of one micro-batch."""
    parts = [h.figures.split_seconds for h in held]
    counts = [h.count for h in held]
    forward, inputs, weights = (
        sum(count * part[place] for count, part in zip(counts, parts, strict=True))
        for place in range(3)
    )
    return VirtualStageSeconds(forward=forward, input_gradient=inputs, weight_gradient=weights)


def _sums(parts: Sequence[tuple[int, Mapping[str, float]]]) -> dict[str, float]:
    """Return the sum of each part, so many times each, by name."""
    return {name: sum(count * own[name] for count, own in parts) for name in parts[0][1]}


def _sum_bytes(held: Sequence[HeldLayers], name: str) -> float:
    return sum(h.count * h.figures.bytes[name] for h in held)


def _memory(
    held: Sequence[HeldLayers], limits: MemoryLimits, *, activations: float, boundary: float
) -> MemoryBreakdown:
    """Return the peak by cause: what is always held, activations in flight, largest transient."""
    largest = max((h.figures.bytes for h in held), key=itemgetter("transient"))
    transient, logits = largest["transient"], largest["logits"]
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
