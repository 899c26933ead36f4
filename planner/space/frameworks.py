"""Frameworks: the parts of the space that a framework's own configuration can say exactly.

A job that names its framework is searched in these parts alone. In each, all layers and the ends
are treated alike, since no framework here has a choice by layer. What a field may be by itself, and
what is offloaded together, is in the one table that exports go by too
(`planner.exporters.strategy_fields`, which has the sources); here is what goes with what:

- torchtitan: stages of a pipeline keep gathered parameters and whole gradients until the last
  micro-batch, which is ZeRO 1; without a pipeline gradients are reduced after every micro-batch,
  ZeRO 2, or parameters resharded as well, ZeRO 3. Context-parallel ranks always shard. An expert is
  split only without expert parallelism.
- Megatron-LM: Megatron-FSDP is ZeRO 2 and 3 without pipelines; SGD is updated without ZeRO.
- DeepSpeed: tensor parallelism does not go with ZeRO 3 or with exchanged heads.
- Accelerate, and Axolotl on it: tensor parallelism beside sharding only; what is offloaded is
  sharded.
- LLaMA-Factory: DeepSpeed's, without context parallelism; weights of 8 bits are not sharded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from planner.errors import InputError
from planner.exporters.decoder_stages import pipeline_obstacle
from planner.exporters.job_fields import refuse_adapters
from planner.exporters.model_fields import context_obstacle, refuse_model
from planner.exporters.strategy_fields import OFFLOADED_TOGETHER, STRATEGY_FIELDS
from planner.schema.job import DegreeLimit, Framework, Job, Limits, Optimizer, Precision
from planner.schema.model import ModelGraph
from planner.schema.strategy import ActivationCheckpointing, ContextParallelKind
from planner.space.choices import is_legal_in

_ONE = DegreeLimit(min=1, max=1)
_SEVERAL = DegreeLimit(min=2)

Part = Mapping[str, object]

_PLAIN: Part = {"context_parallel_degree": _ONE, "expert_parallel_degree": _ONE}
_LONE: Part = {
    "tensor_parallel_degree": _ONE,
    "context_parallel_degree": _ONE,
    "data_parallel_replicate_degree": _ONE,
    "data_parallel_shard_degree": _ONE,
}
_PARTS: dict[Framework, tuple[Part, ...]] = {
    Framework.TORCHTITAN: (
        {"zero_stages": (0,), **_PLAIN},
        {"zero_stages": (1,), "pipeline_parallel_degree": _SEVERAL},
        {"zero_stages": (2,), "pipeline_parallel_degree": _ONE},
        {"zero_stages": (3,), "pipeline_parallel_degree": _ONE},
    ),
    Framework.MEGATRON_LM: (
        {"zero_stages": (0,)},
        {"zero_stages": (1,)},
        {"zero_stages": (2,), "pipeline_parallel_degree": _ONE},
        {"zero_stages": (3,), "pipeline_parallel_degree": _ONE},
    ),
    Framework.DEEPSPEED: tuple(
        {"zero_stages": (stage,), "data_parallel_replicate_degree": _ONE, lone: _ONE}
        for stage in range(4)
        for lone in ("context_parallel_degree", "tensor_parallel_degree")
        if stage < 3 or lone == "tensor_parallel_degree"
    ),
    Framework.ACCELERATE: (
        {"zero_stages": (0,), "tensor_parallel_degree": _ONE, **_PLAIN},
        *({"zero_stages": (stage,), "data_parallel_shard_degree": _SEVERAL} for stage in (2, 3)),
    ),
    Framework.LLAMA_FACTORY: (
        *({"zero_stages": (stage,), "data_parallel_replicate_degree": _ONE} for stage in range(3)),
        {
            "zero_stages": (3,),
            "data_parallel_replicate_degree": _ONE,
            "tensor_parallel_degree": _ONE,
        },
    ),
}
_PARTS[Framework.AXOLOTL] = _PARTS[Framework.ACCELERATE]
# Of a lone device nothing is sharded: its states lie on the host by the same switch.
_OFFLOADED_ALONE: dict[Framework, tuple[Part, ...]] = {
    Framework.ACCELERATE: ({"zero_stages": (3,), **_LONE},),
    Framework.AXOLOTL: ({"zero_stages": (3,), **_LONE},),
}
# The limit on what the table has as a field's values.
_LISTS = {
    "context_parallel_kind": "context_parallel_kinds",
    "pipeline_schedule": "pipeline_schedules",
    "activation_checkpointing": "activation_checkpointing",
}


def framework_limits(job: Job, graph: ModelGraph) -> tuple[Limits, ...]:
    """Return the limits of each part of the space that the job's framework can say of the model.

    They are the job's own, narrowed; parts that these leave empty are left out. In each, all layers
    offload exactly what `offload` has. A job that names no framework has its own limits alone.

    Raises:
        InputError: if the framework has nothing in the job's precision, or trains no adapters or
            no such model.
    """
    if job.framework is None:
        return (job.limits,)
    _refuse_job(job, job.framework)
    refuse_model(graph, job.framework.value)
    alone = _field_limits(job.framework, graph)
    kept = [c for c in ActivationCheckpointing if c in _common_checkpointing(job, alone)]
    return tuple(
        limits
        for part in _parts(job, job.framework)
        for one in kept
        for limits in _narrowed(job.limits, (alone, part, {"activation_checkpointing": (one,)}))
    )


def _refuse_job(job: Job, framework: Framework) -> None:
    """Raise where the framework trains nothing like the job, before it is searched for."""
    refuse_adapters(job, framework.value)
    if framework is Framework.TORCHTITAN and job.precision is Precision.FP16:
        raise InputError(
            "torchtitan has no loss scale and no float16",
            field="job.precision",
            value=job.precision.value,
            remedy="plan for bf16, or for another framework",
        )


def _field_limits(framework: Framework, graph: ModelGraph) -> Part:
    """Return what the table and the model's own layers leave of each field."""
    part: dict[str, object] = {}
    for name, said in STRATEGY_FIELDS[framework.value].items():
        if said.values == (1,):
            part[name] = _ONE
        elif name in _LISTS and said.values is not None:
            part[_LISTS[name]] = said.values
        elif name == "sequence_parallel" and said.values is not None:
            (part[name],) = said.values
    if graph.tower_block_count or pipeline_obstacle(graph, framework.value) is not None:
        part["pipeline_parallel_degree"] = _ONE
    return {**part, **_context_limits(framework, graph)}


def _context_limits(framework: Framework, graph: ModelGraph) -> Part:
    """Return what is left of context parallelism that attends as the model does."""
    said = STRATEGY_FIELDS[framework.value]["context_parallel_kind"]
    kinds = tuple(
        kind
        for kind in ContextParallelKind
        if (said.values is None or kind in said.values)
        and context_obstacle(graph, framework.value, kind) is None
    )
    return {"context_parallel_kinds": kinds} if kinds else {"context_parallel_degree": _ONE}


def _common_checkpointing(job: Job, alone: Part) -> tuple[ActivationCheckpointing, ...]:
    both = _common(job.limits.activation_checkpointing, alone["activation_checkpointing"])
    return both if isinstance(both, tuple) else ()


def _parts(job: Job, framework: Framework) -> Iterator[Part]:
    """Yield the framework's parts: without offload, then with what it offloads together."""
    parts = [part for part in _PARTS[framework] if _holds_frozen_weights(job, framework, part)]
    if framework is Framework.MEGATRON_LM and job.optimizer is Optimizer.SGD:
        yield {**parts[0], "offload": ()}  # its distributed optimizer takes no SGD
        return
    for part in parts:
        yield {**part, "offload": ()}
    for part in (*parts, *_OFFLOADED_ALONE.get(framework, ())):
        (stage,) = _zero_stages(part)
        for items in OFFLOADED_TOGETHER[framework.value].get(stage, ()):
            if set(items) <= set(job.limits.offload) and is_legal_in(job.offload_to, stage, items):
                yield {**part, "offload": items}


def _holds_frozen_weights(job: Job, framework: Framework, part: Part) -> bool:
    """Return whether the framework shards the frozen weights: LLaMA-Factory none of 8 bits."""
    of_8_bits = job.adapters is not None and job.adapters.base_bits == 8
    return not (of_8_bits and framework is Framework.LLAMA_FACTORY and 3 in _zero_stages(part))


def _zero_stages(part: Part) -> tuple[int, ...]:
    """Return the ZeRO stages of a part."""
    stages = part["zero_stages"]
    return stages if isinstance(stages, tuple) else ()


def splits_experts_as_it_must(
    framework: Framework | None, *, tensor: int, expert: int, split: int
) -> bool:
    """Return whether the framework splits an expert over so many of the tensor-parallel ranks."""
    if framework is None or framework is Framework.MEGATRON_LM or tensor == 1:
        return True
    if framework is Framework.TORCHTITAN and expert > 1:
        return split == 1
    return split == tensor


def _narrowed(limits: Limits, parts: Sequence[Part]) -> Iterator[Limits]:
    """Yield the limits within all parts, nothing where they have nothing in common."""
    update: dict[str, object] = {}
    for part in parts:
        for name, wanted in part.items():
            if name == "offload":
                update[name] = wanted
                continue
            both = _common(update.get(name, getattr(limits, name)), wanted)
            if both is None or both == ():
                return
            update[name] = both
    yield limits.model_copy(update=update)


def _common(own: object, wanted: object) -> object | None:
    """Return what two limits of one kind both allow, None or () for nothing."""
    if isinstance(own, DegreeLimit) and isinstance(wanted, DegreeLimit):
        low, high = max(own.min, wanted.min), min(own.max, wanted.max)
        return DegreeLimit(min=low, max=high) if low <= high else None
    if isinstance(own, tuple) and isinstance(wanted, tuple):
        return tuple(item for item in own if item in wanted)
    return wanted if own is None or own == wanted else None
