"""Random legal strategies, as plans have them."""

from __future__ import annotations

import random

from planner.schema.strategy import (
    ActivationCheckpointing,
    ContextParallelKind,
    EdgeChoice,
    LayerGroup,
    Offload,
    PipelineSchedule,
    Stage,
    Strategy,
)

DEVICES = 16
BATCH = 64
_DEGREES = (1, 1, 2, 4)


def random_strategy(rng: random.Random, *, block_count: int, experts: int) -> Strategy:
    """A strategy of 16 devices with a batch of 64; every choice is drawn, alike in half of all."""
    while True:
        tensor, pipeline, context = (rng.choice(_DEGREES) for _ in range(3))
        if DEVICES % (tensor * pipeline * context) == 0:
            break
    data = DEVICES // (tensor * pipeline * context)
    shard = rng.choice([d for d in (1, 2, 4, 8, 16) if data % d == 0])
    schedule = rng.choice(list(PipelineSchedule)) if pipeline > 1 else PipelineSchedule.ONE_F_ONE_B
    virtual = {PipelineSchedule.INTERLEAVED: rng.choice((2, 4))}.get(schedule, 1)
    if schedule in {PipelineSchedule.ZB_V, PipelineSchedule.DUALPIPE_V}:
        virtual = 2
    split = rng.choice((1, tensor, tensor // 2 if tensor > 1 else 1))
    holders = tensor // split * shard * context
    expert = rng.choice([d for d in (1, 2, 4, 8) if experts % d == 0 and holders % d == 0])
    alike = rng.random() < 0.5
    one = _treatment(rng)
    stages = _stages(rng, block_count, pipeline * virtual, one if alike else None)
    sizes = [s for s in (1, 2, 4) if (BATCH // data) % s == 0]
    return Strategy(
        tensor_parallel_degree=tensor,
        sequence_parallel=tensor > 1 and rng.random() < 0.5,
        pipeline_parallel_degree=pipeline,
        virtual_pipeline_degree=virtual,
        pipeline_schedule=schedule,
        context_parallel_degree=context,
        context_parallel_kind=rng.choice(list(ContextParallelKind))
        if context > 1
        else ContextParallelKind.RING,
        expert_parallel_degree=expert,
        expert_tensor_parallel_degree=split if experts > 1 else tensor,
        data_parallel_shard_degree=shard,
        data_parallel_replicate_degree=data // shard,
        micro_batch_size=rng.choice(sizes),
        stages=stages,
        embedding=None if alike else EdgeChoice(zero_stage=rng.randrange(4)),
    )


def _treatment(rng: random.Random) -> dict[str, object]:
    zero = rng.randrange(4)
    possible = [i for i in Offload if i is not Offload.PARAMETERS or zero == 3]
    return {
        "zero_stage": zero,
        "activation_checkpointing": rng.choice(list(ActivationCheckpointing)),
        "offload": tuple(i for i in possible if rng.random() < 0.2),
    }


def _stages(
    rng: random.Random, blocks: int, count: int, alike: dict[str, object] | None
) -> tuple[Stage, ...]:
    cuts = sorted(rng.sample(range(1, blocks), count - 1)) if rng.random() < 0.5 else []
    if not cuts:
        cuts = [
            sum(divmod(blocks, count)[0] + (i < blocks % count) for i in range(j))
            for j in range(1, count)
        ]
    bounds = [0, *cuts, blocks]
    stages = []
    for index in range(count):
        first, last = bounds[index], bounds[index + 1]
        middle = rng.randint(first + 1, last - 1) if last - first > 1 and alike is None else last
        parts = [(first, middle), (middle, last)]
        groups = tuple(
            LayerGroup(first_block=a, block_count=b - a, **(alike or _treatment(rng)))
            for a, b in parts
            if b > a
        )
        stages.append(Stage(stage=index, layers=groups))
    return tuple(stages)
