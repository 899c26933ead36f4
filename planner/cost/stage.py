"""Stage: the sums over the layers that one pipeline stage holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from planner.cost.configuration import Floats
from planner.cost.layer_costs import (
    CostTable,
    LayerCosts,
    MemoryLimits,
    MicroBatchSeconds,
    StepEndSeconds,
)
from planner.schema.plan import MemoryBreakdown

_MICRO_BATCH_PARTS = tuple(
    field.name for field in fields(MicroBatchSeconds) if field.name != "forward_share"
)
_STEP_END_PARTS = tuple(field.name for field in fields(StepEndSeconds))


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLayers:
    """`count` equal layers that a stage holds: priced by `costs` under the choice at `choice`."""

    costs: LayerCosts
    choice: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTotals:
    """Seconds and bytes of one stage. `memory` sums to the peak."""

    micro_batch_seconds: dict[str, float]
    forward_seconds: float
    step_end_seconds: dict[str, float]
    memory: MemoryBreakdown
    host_bytes: float

    @property
    def pace_seconds(self) -> float:
        """Return t_r: the stage's seconds per micro-batch."""
        return sum(self.micro_batch_seconds.values())

    @property
    def end_seconds(self) -> float:
        """Return u_r: the stage's seconds once a step."""
        return sum(self.step_end_seconds.values())


def stage_totals(
    held: Sequence[HeldLayers],
    table: CostTable,
    *,
    configuration: int,
    boundaries: int,
    micro_batches_in_flight: int,
) -> StageTotals:
    """Return what the stage that holds `held` takes, for the table's row `configuration`."""
    row = configuration
    micro_batch = {
        name: sum(h.count * _at(h.costs.micro_batch_seconds, name, row, h.choice) for h in held)
        for name in _MICRO_BATCH_PARTS
    }
    forward = sum(h.count * _forward_seconds(h, row) for h in held)
    boundary_seconds = boundaries * float(table.fixed.boundary_seconds[row])
    micro_batch["pipeline_point_to_point"] += boundary_seconds
    step_end = {
        name: sum(h.count * _at(h.costs.step_end_seconds, name, row, h.choice) for h in held)
        for name in _STEP_END_PARTS
    }
    step_end["data_parallel_exposed"] += float(table.fixed.step_end_seconds[row])
    boundary_bytes = boundaries * micro_batches_in_flight * float(table.fixed.boundary_bytes[row])
    return StageTotals(
        micro_batch_seconds=micro_batch,
        forward_seconds=forward + boundary_seconds / 2.0,
        step_end_seconds=step_end,
        memory=_memory(
            held, row, table.limits, in_flight=micro_batches_in_flight, boundary=boundary_bytes
        ),
        host_bytes=_sum_bytes(held, "host", row),
    )


def _at(part: object, name: str, row: int, choice: int) -> float:
    values: Floats = getattr(part, name)
    return float(values[row, choice])


def _forward_seconds(held: HeldLayers, row: int) -> float:
    seconds = held.costs.micro_batch_seconds
    total = sum(_at(seconds, name, row, held.choice) for name in _MICRO_BATCH_PARTS)
    return total * float(seconds.forward_share[row, held.choice])


def _sum_bytes(held: Sequence[HeldLayers], name: str, row: int) -> float:
    return sum(h.count * _at(h.costs.bytes, name, row, h.choice) for h in held)


def _memory(
    held: Sequence[HeldLayers], row: int, limits: MemoryLimits, *, in_flight: int, boundary: float
) -> MemoryBreakdown:
    """Return the peak by cause: what is always held, activations in flight, largest transient."""
    largest = max(held, key=lambda h: _at(h.costs.bytes, "transient", row, h.choice))
    transient = _at(largest.costs.bytes, "transient", row, largest.choice)
    logits = _at(largest.costs.bytes, "logits", row, largest.choice)
    parts = {
        name: _sum_bytes(held, name, row)
        for name in ("parameters", "gradients", "optimizer", "communication_buffers")
    }
    parts["communication_buffers"] += boundary
    activations = in_flight * _sum_bytes(held, "activations", row)
    live = sum(parts.values()) + activations + transient
    return MemoryBreakdown(
        **parts,
        activations=activations,
        logits=logits,
        workspace=transient - logits,
        runtime=limits.runtime_bytes + limits.slack_ratio * live,
    )
