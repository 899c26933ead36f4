"""Figures: what one layer takes under one configuration and choice, as plain numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from planner.cost.layer_costs import LayerBytes, LayerCosts, MicroBatchSeconds, StepEndSeconds

_SHARES = ("forward_share", "weight_gradient_share")
_MICRO_BATCH_PARTS = tuple(
    field.name for field in fields(MicroBatchSeconds) if field.name not in _SHARES
)
_STEP_END_PARTS = tuple(field.name for field in fields(StepEndSeconds))
_BYTES_PARTS = tuple(field.name for field in fields(LayerBytes))


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerFigures:
    """Seconds per micro-batch, seconds at the step's end, and bytes of one layer, by cause.

    `split_seconds` are those of a micro-batch's forward, inputs' gradients and weights' gradients.
    """

    micro_batch_seconds: Mapping[str, float]
    split_seconds: tuple[float, float, float]
    step_end_seconds: Mapping[str, float]
    bytes: Mapping[str, float]


def figures_of(costs: LayerCosts, choice: int) -> LayerFigures:
    """Return the figures under the choice at `choice`; costs are of one row, [1, choices]."""
    seconds = costs.micro_batch_seconds
    parts = _numbers(seconds, _MICRO_BATCH_PARTS, choice)
    total = sum(parts.values())
    forward = total * seconds.forward_share.item(0, choice)
    weight_gradient = total * seconds.weight_gradient_share.item(0, choice)
    return LayerFigures(
        micro_batch_seconds=parts,
        split_seconds=(forward, total - forward - weight_gradient, weight_gradient),
        step_end_seconds=_numbers(costs.step_end_seconds, _STEP_END_PARTS, choice),
        bytes=_numbers(costs.bytes, _BYTES_PARTS, choice),
    )


def _numbers(columns: object, names: tuple[str, ...], choice: int) -> dict[str, float]:
    return {name: getattr(columns, name).item(0, choice) for name in names}
