"""Frameworks: the parts of the space that a framework's own configuration can say exactly.

A job that names its framework is searched in these parts alone. In each, all layers and the ends
are treated alike, since no framework here has a choice by layer, and nothing is offloaded: where
and how much each offloads is its own, and is stated when a plan is exported.

- torchtitan (0.3.0): stages of a pipeline keep gathered parameters and whole gradients until the
  last micro-batch, which is ZeRO 1; without a pipeline gradients are reduced after every
  micro-batch, ZeRO 2, or parameters resharded as well, ZeRO 3. Source: `distributed/fsdp.py`,
  and torch's `pipelining/stage.py`. Keys and values travel between context-parallel ranks, which
  always shard. An expert is split only without expert parallelism (`distributed/parallel_dims.py`).
- Megatron-LM (0.19.2): the distributed optimizer is ZeRO 1, Megatron-FSDP 2 and 3 without
  pipelines; recomputing is full or none. Source: `training/arguments.py`.
- DeepSpeed (0.19.8): its configuration says neither pipelines nor experts; sequences are shared by
  exchanging heads, tensor parallelism keeps them whole and does not go with ZeRO 3 or with that.
  Source: `runtime/config.py`, `runtime/engine.py`.
- Accelerate (1.15.0): no pipelines, no experts; tensor parallelism beside sharding only.
  Source: `parallelism_config.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from planner.errors import InputError
from planner.schema.job import DegreeLimit, Framework, Job, Limits, Precision
from planner.schema.strategy import ActivationCheckpointing, ContextParallelKind

_ONE = DegreeLimit(min=1, max=1)
_SEVERAL = DegreeLimit(min=2)
_NONE, _SELECTIVE, _FULL = tuple(ActivationCheckpointing)
_RING, _HEADS = tuple(ContextParallelKind)

Part = Mapping[str, object]

_WITHOUT: Part = {"pipeline_parallel_degree": _ONE, "expert_parallel_degree": _ONE}
_PLAIN: Part = {"context_parallel_degree": _ONE, "expert_parallel_degree": _ONE}
_PARTS: dict[Framework, tuple[Part, ...]] = {
    Framework.TORCHTITAN: (
        {"zero_stages": (0,), "context_parallel_kinds": (_RING,), **_PLAIN},
        {
            "zero_stages": (1,),
            "context_parallel_kinds": (_RING,),
            "pipeline_parallel_degree": _SEVERAL,
        },
        {"zero_stages": (2,), "context_parallel_kinds": (_RING,), "pipeline_parallel_degree": _ONE},
        {"zero_stages": (3,), "context_parallel_kinds": (_RING,), "pipeline_parallel_degree": _ONE},
    ),
    Framework.MEGATRON_LM: (
        {"zero_stages": (0,)},
        {"zero_stages": (1,)},
        {"zero_stages": (2,), "pipeline_parallel_degree": _ONE},
        {"zero_stages": (3,), "pipeline_parallel_degree": _ONE},
    ),
    Framework.DEEPSPEED: tuple(
        {
            "zero_stages": (stage,),
            "sequence_parallel": False,
            "context_parallel_kinds": (_HEADS,),
            "data_parallel_replicate_degree": _ONE,
            lone: _ONE,
            **_WITHOUT,
        }
        for stage in range(4)
        for lone in ("context_parallel_degree", "tensor_parallel_degree")
        if stage < 3 or lone == "tensor_parallel_degree"
    ),
    Framework.ACCELERATE: (
        {"zero_stages": (0,), "tensor_parallel_degree": _ONE, **_WITHOUT, **_PLAIN},
        *(
            {
                "zero_stages": (stage,),
                "sequence_parallel": False,
                "context_parallel_kinds": (_RING,),
                "data_parallel_shard_degree": _SEVERAL,
                **_WITHOUT,
            }
            for stage in (2, 3)
        ),
    ),
}
_CHECKPOINTING = {
    Framework.TORCHTITAN: (_NONE, _SELECTIVE, _FULL),
    Framework.MEGATRON_LM: (_NONE, _FULL),
    Framework.DEEPSPEED: (_NONE, _FULL),
    Framework.ACCELERATE: (_NONE, _FULL),
}


def framework_limits(job: Job) -> tuple[Limits, ...]:
    """Return the limits of each part of the space that the job's framework can say.

    They are the job's own, narrowed; parts that these leave empty are left out. A job that names no
    framework has its own limits alone.

    Raises:
        InputError: if the framework has nothing in the job's precision.
    """
    if job.framework is None:
        return (job.limits,)
    if job.framework is Framework.TORCHTITAN and job.precision is Precision.FP16:
        raise InputError(
            "torchtitan has no loss scale and no float16",
            field="job.precision",
            value=job.precision.value,
            remedy="plan for bf16, or for another framework",
        )
    kept = [c for c in _CHECKPOINTING[job.framework] if c in job.limits.activation_checkpointing]
    return tuple(
        limits
        for part in _PARTS[job.framework]
        for one in kept
        for limits in _narrowed(job.limits, {**part, "activation_checkpointing": (one,)})
    )


def splits_experts_as_it_must(
    framework: Framework | None, *, tensor: int, expert: int, split: int
) -> bool:
    """Return whether the framework splits an expert over so many of the tensor-parallel ranks."""
    if framework is None or framework is Framework.MEGATRON_LM or tensor == 1:
        return True
    if framework is Framework.TORCHTITAN and expert > 1:
        return split == 1
    return split == tensor


def _narrowed(limits: Limits, part: Part) -> Iterator[Limits]:
    """Yield the limits within the part, nothing where the two have nothing in common."""
    update: dict[str, object] = {"offload": ()}
    for name, wanted in part.items():
        own = getattr(limits, name)
        both = _common(own, wanted)
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
