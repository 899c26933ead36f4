"""Supported: what of a plan the executor can apply. All else is refused before ranks start.

Torch answers most of these with a crash or an obscure error in the middle of a step.
"""

from __future__ import annotations

from executor.apply.runnable_schedules import check_schedule
from executor.apply.sharable import check_exchanged_heads, check_sequence
from executor.errors import UnsupportedPlanError
from executor.models.declaration import Shapes
from planner.schema.job import Job, Precision
from planner.schema.strategy import EdgeChoice, Strategy

_PRECISIONS = (Precision.FP32, Precision.BF16)


def check_strategy(strategy: Strategy, job: Job) -> None:
    """Return if the executor has every technique that `strategy` names.

    Raises:
        UnsupportedPlanError: naming the first that it has not.
    """
    check_schedule(strategy)
    _check_degrees(strategy)
    _check_offload(strategy)
    if job.precision not in _PRECISIONS:
        raise UnsupportedPlanError(
            "the executor trains in bf16 or fp32",
            field="job.precision",
            value=job.precision.value,
            remedy="plan with precision bf16",
        )
    if job.sequence_length is None or job.global_batch_size is None:
        raise UnsupportedPlanError(
            "the job must state its sequence length and batch",
            field="job",
            remedy="take the plan from `meshwright plan`, which resolves both",
        )
    check_sequence(strategy, job.sequence_length)


def check_shapes(shapes: Shapes, strategy: Strategy) -> None:
    """Return if the tensor-parallel degree divides all that it splits.

    Raises:
        UnsupportedPlanError: naming the first size that it does not divide.
    """
    tp = strategy.tensor_parallel_degree
    for name, size in shapes.divided_by_tensor_parallel().items():
        if size % tp:
            raise UnsupportedPlanError(
                f"does not divide the model's {name} {size}",
                field="strategy.tensor_parallel_degree",
                value=tp,
                remedy=f"use a degree that divides {size}",
            )
    check_exchanged_heads(shapes, strategy)


def _check_degrees(strategy: Strategy) -> None:
    for field in ("expert_parallel_degree",):
        degree = getattr(strategy, field)
        if degree != 1:
            raise UnsupportedPlanError(
                "the executor cannot apply this degree",
                field=f"strategy.{field}",
                value=degree,
                remedy=f"plan with {field} limited to 1",
            )


def _check_offload(strategy: Strategy) -> None:
    choices: list[tuple[str, EdgeChoice | None]] = [
        ("strategy.embedding", strategy.embedding),
        ("strategy.head", strategy.head),
    ]
    offloads = [(field, choice.offload) for field, choice in choices if choice is not None]
    for stage in strategy.stages or ():
        for index, group in enumerate(stage.layers):
            offloads.append((f"strategy.stages.{stage.stage}.layers.{index}", group.offload))
    for field, offload in offloads:
        if offload:
            raise UnsupportedPlanError(
                "the executor keeps all state on the device",
                field=f"{field}.offload",
                value=[item.value for item in offload],
                remedy="plan with limits.offload []",
            )
