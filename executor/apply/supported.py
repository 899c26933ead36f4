"""Supported: what of a plan the executor can apply. All else is refused before ranks start.

Torch answers most of these with a crash or an obscure error in the middle of a step.
"""

from __future__ import annotations

from executor.apply.runnable_schedules import check_schedule
from executor.apply.sharable import check_exchanged_heads, check_experts, check_sequence
from executor.errors import UnsupportedPlanError
from executor.models.declaration import Shapes
from planner.extras import check_extras
from planner.schema.job import Adapters, BaseFormat, Job, OffloadStore, Precision, Unpacking
from planner.schema.strategy import EdgeChoice, LayerGroup, Offload, Strategy

LAST_ZERO_STAGE = 3


def check_strategy(strategy: Strategy, job: Job) -> None:
    """Return if the executor has every technique that `strategy` names.

    Raises:
        UnsupportedPlanError: naming the first that it has not.
        MissingExtraError: if fp8 or frozen weights in 4 or 8 bits are asked for, and torchao or
            bitsandbytes is not installed.
    """
    check_schedule(strategy)
    _check_offload(strategy, job)
    if job.precision is Precision.FP8:
        check_extras("job.precision fp8", "executor.apply.float8")
    _check_states(job)
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
    check_experts(shapes, strategy)


def _check_states(job: Job) -> None:
    for field in ("states_in_16_bits", "gradients_in_16_bits"):
        if getattr(job, field):
            raise UnsupportedPlanError(
                "the executor keeps parameters, gradients and optimizer states in 32 bits",
                field=f"job.{field}",
                value=True,
                remedy=f"plan with {field} false",
            )
    for field in ("steps_in_backward", "paged_states", "offloaded_gradients"):
        if getattr(job, field):
            raise UnsupportedPlanError(
                "the executor holds gradients on the device until one update of all parameters, and"
                " updates offloaded states on the host",
                field=f"job.{field}",
                value=True,
                remedy=f"plan with {field} false",
            )
    if job.fused_linear_loss:
        raise UnsupportedPlanError(
            "the executor's head puts out whole logits, which the loss takes",
            field="job.fused_linear_loss",
            value=True,
            remedy="plan with fused_linear_loss false",
        )
    if job.adapters is not None:
        _check_adapters(job.adapters)


def _check_adapters(adapters: Adapters) -> None:
    if adapters.base_bits != 16:
        check_extras("job.adapters.base_bits", "executor.models.quantized_linear")
        if adapters.unpacking is not Unpacking.KERNEL:
            raise UnsupportedPlanError(
                "frozen weights of 4 or 8 bits are unpacked by bitsandbytes' kernels",
                field="job.adapters.unpacking",
                value=adapters.unpacking.value,
                remedy="plan with unpacking kernel",
            )
        if adapters.base_format not in {BaseFormat.BNB_NESTED, BaseFormat.BNB}:
            raise UnsupportedPlanError(
                "frozen weights of 4 bits are those of bitsandbytes",
                field="job.adapters.base_format",
                value=adapters.base_format.value,
                remedy="plan with base_format bnb_nested or bnb",
            )
    if adapters.trains_ends:
        raise UnsupportedPlanError(
            "the executor trains adapters alone, and no copies of embedding and head",
            field="job.adapters.trains_ends",
            value=True,
            remedy="plan with trains_ends false",
        )


def _check_offload(strategy: Strategy, job: Job) -> None:
    choices: list[tuple[str, EdgeChoice | LayerGroup | None]] = [
        ("strategy.embedding", strategy.embedding),
        ("strategy.head", strategy.head),
    ]
    for stage in strategy.stages or ():
        for index, group in enumerate(stage.layers):
            choices.append((f"strategy.stages.{stage.stage}.layers.{index}", group))
    for field, choice in choices:
        if choice is None or not choice.offload:
            continue
        if job.offload_to is not OffloadStore.HOST:
            raise UnsupportedPlanError(
                "the executor offloads to host memory alone",
                field="job.offload_to",
                value=job.offload_to.value,
                remedy="plan with offload_to host, or with limits.offload []",
            )
        if Offload.PARAMETERS in choice.offload and choice.zero_stage != LAST_ZERO_STAGE:
            raise UnsupportedPlanError(
                f"parameters are offloaded only when sharded, and zero_stage is "
                f"{choice.zero_stage}",
                field=f"{field}.offload",
                value=[item.value for item in choice.offload],
                remedy="use zero_stage 3 there, or remove parameters from the list",
            )
