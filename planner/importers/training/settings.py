"""Settings: the strategy and the job that the words of a training configuration amount to.

The words are those that tables of formats name (`planner.importers.training.formats`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from planner.errors import DocumentError
from planner.importers.training.adapters import adapters_of
from planner.importers.training.batch import batch_of, sequence_length_of
from planner.importers.training.config import (
    Setting,
    TrainingConfig,
    data_parallel_degree,
    require_one_decoder,
)
from planner.importers.training.deepspeed_inside import deepspeed_fields, read_inside
from planner.importers.training.format import Format, words_of
from planner.importers.training.megatron_words import read_megatron_words
from planner.importers.training.numerics import (
    collectives_of,
    is_mixed,
    kernels_of,
    optimizer_of,
    precision_of,
)
from planner.importers.training.objectives import hold_to_model
from planner.importers.training.sharding import Sharding, checkpointing_of, sharding_of
from planner.importers.training.words import Words
from planner.schema.job import Stack
from planner.schema.strategy import ContextParallelKind, PipelineSchedule, Strategy

_SCHEDULES = {
    "1f1b": PipelineSchedule.ONE_F_ONE_B,
    "gpipe": PipelineSchedule.GPIPE,
    "afab": PipelineSchedule.GPIPE,
    "interleaved1f1b": PipelineSchedule.INTERLEAVED,
    "zbvzerobubble": PipelineSchedule.ZB_V,
    "dualpipev": PipelineSchedule.DUALPIPE_V,
}
_NAMES = {
    "tensor_parallel_degree": "tensor",
    "sequence_parallel": "sequence_parallel",
    "pipeline_parallel_degree": "pipeline",
    "virtual_pipeline_degree": "virtual",
    "pipeline_schedule": "schedule",
    "context_parallel_degree": "context",
    "expert_parallel_degree": "expert",
    "expert_tensor_parallel_degree": "expert_tensor",
    "data_parallel_shard_degree": "shard",
    "data_parallel_replicate_degree": "replicate",
    "micro_batch_size": "micro_batch",
    "global_batch_size": "global_batch",
    "sequence_length": "sequence_length",
    "activation_checkpointing": "checkpointing",
    "offload": "offload",
}
_STAGE_WORDS = ("zero_stage", "reshard", "sharding", "fsdp_switch", "fsdp")


def read_format(table: Format, fields: Mapping[str, Any], setting: Setting) -> TrainingConfig:
    """Return the strategy and the job that the fields say by a format's table.

    Raises:
        DocumentError: naming the key, its value and the remedy.
    """
    words = words_of(table, fields)
    _require_devices(words, setting)
    hold_to_model(words, setting.graph)
    if table.stack is Stack.MEGATRON:
        config = read_megatron_words(words, setting)
        job: dict[str, object] = {**config.job, **_extras(words)}
        return replace(config, format=table.name, job=job, assumptions=_all_said(words, config))
    inside = deepspeed_fields(words, setting)
    if inside is not None:
        config = read_inside(inside, words, setting)
        job = {**config.job, **_extras(words)}
        return replace(config, format=table.name, job=job, assumptions=_all_said(words, config))
    return _settled(table, words, setting)


def _all_said(words: Words, config: TrainingConfig) -> tuple[str, ...]:
    return (*words.said, *words.unused(), *config.assumptions)


def _settled(table: Format, words: Words, setting: Setting) -> TrainingConfig:
    sharding = sharding_of(words)
    degrees, data = _degrees(words, setting)
    replicate, shard = _data(words, setting, sharding, data)
    batch, micro = batch_of(words, setting, data)
    kept, moved = checkpointing_of(words)
    strategy = Strategy(
        **degrees,
        data_parallel_replicate_degree=replicate,
        data_parallel_shard_degree=shard,
        micro_batch_size=micro,
        zero_stage=sharding.stage,
        activation_checkpointing=kept,
        offload=(*sharding.offload, *moved),
    )
    job: dict[str, object] = {
        "stack": table.stack.value,
        "global_batch_size": batch,
        **precision_of(words),
        **_extras(words),
    }
    if job["precision"] == "fp8" and "adapters" not in job and words.flag("float8_gather"):
        job["gathered_in_8_bits"] = True
    widened = sharding.stage > 0 and words.fixed.get("widened_where_sharded") and is_mixed(words)
    if "adapters" in job or widened:
        narrow = job.pop("states_in_16_bits", False)
        if narrow and widened and "adapters" not in job:
            words.said.append(
                f"{words.place('states_precision')}: Accelerate keeps trained weights in 32 bits "
                "under FSDP and mixed precision"
            )
    return TrainingConfig(
        format=table.name,
        strategy=strategy,
        job=job,
        assumptions=(*words.said, *words.unused()),
        names=_names(words),
    )


def _extras(words: Words) -> dict[str, Any]:
    """Return the job's fields that every kind of training may say."""
    length = sequence_length_of(words)
    known = {} if length is None else {"sequence_length": length}
    own = {**optimizer_of(words), **kernels_of(words), **collectives_of(words)}
    return {**known, **own, **adapters_of(words)}


def _names(words: Words) -> dict[str, str]:
    """Return the file's own name of each of the strategy's fields."""
    names = {
        field: words.place(word)
        for field, word in _NAMES.items()
        if word in words.places or word in words
    }
    stage = next((word for word in _STAGE_WORDS if word in words.places), None)
    return names if stage is None else {**names, "zero_stage": words.place(stage)}


def _require_devices(words: Words, setting: Setting) -> None:
    """Raise unless the devices that the file is for are as many as the cluster has."""
    word = "device_count" if "device_count" in words else "devices_per_node"
    stated = words.size("node_count", 1)
    if word not in words:
        return
    nodes = stated if word == "devices_per_node" else 1
    found = words.size(word) * nodes
    if found != setting.device_count and (word == "device_count" or "node_count" in words):
        shown = f"{words.size(word)} on {nodes} nodes" if nodes > 1 else found
        raise DocumentError(
            f"is not the number of the cluster's devices, {setting.device_count}",
            field=words.place(word),
            value=shown,
            remedy="give the cluster that the file is for",
        )


def _degrees(words: Words, setting: Setting) -> tuple[dict[str, Any], int]:
    """Return the degrees but those of data parallelism, and the ranks that are left for it."""
    size = {word: words.size(word, 1, minimum=0) or 1 for word in ("tensor", "pipeline", "expert")}
    ring = words.size("context", 1, minimum=0) or 1
    heads = words.size("heads", 1, minimum=0) or 1
    if ring > 1 and heads > 1:
        raise DocumentError(
            f"and {words.place('context')} {ring} split the sequence in two ways",
            field=words.place("heads"),
            value=heads,
            remedy="use one of them",
        )
    context = max(ring, heads)
    exchanges = heads > 1 or (context > 1 and _exchanges_heads(words))
    split = "heads" if heads > 1 else "context"
    data = data_parallel_degree(
        setting,
        {
            words.place("tensor"): size["tensor"],
            words.place("pipeline"): size["pipeline"],
            words.place(split): context,
        },
    )
    degree = words.place("pipeline")
    require_one_decoder(setting, pipeline=size["pipeline"], field_name=degree)
    _require_one_round(words, setting, size["pipeline"])
    virtual, schedule = _schedule(words, setting, size["pipeline"])
    return {
        "tensor_parallel_degree": size["tensor"],
        "sequence_parallel": words.flag("sequence_parallel") and size["tensor"] > 1,
        "pipeline_parallel_degree": size["pipeline"],
        "virtual_pipeline_degree": virtual,
        "pipeline_schedule": schedule,
        "context_parallel_degree": context,
        "context_parallel_kind": ContextParallelKind.ALL_TO_ALL
        if exchanges
        else ContextParallelKind.RING,
        "expert_parallel_degree": size["expert"],
        "expert_tensor_parallel_degree": words.optional_size("expert_tensor"),
    }, data


def _exchanges_heads(words: Words) -> bool:
    """Return whether ranks that share a sequence exchange heads, by the name of their way."""
    way = words.text("context_exchange")
    if way not in (None, "ring", "ulysses"):
        words.said.append(
            f"{words.place('context_exchange')} {way} is priced as passed round a ring"
        )
    return way == "ulysses"


def _require_one_round(words: Words, setting: Setting, pipeline: int) -> None:
    """Raise if a micro-batch passes a pipeline's stages several times, as in MaxText's circles.

    Raises:
        DocumentError: naming the layers of a stage, or those that the pipeline has.
    """
    word, blocks = "pipeline_layers_per_stage", setting.graph.block_count
    if pipeline == 1 or word not in words.places:
        return
    each, pipelined = words.size(word), words.size("pipelined_layers", -1, minimum=-1)
    if pipelined not in (-1, blocks):
        raise DocumentError(
            f"leaves layers outside of the pipeline, and the model has {blocks}",
            field=words.place("pipelined_layers"),
            value=pipelined,
            remedy="use -1",
        )
    if each * pipeline != blocks:
        raise DocumentError(
            f"makes {pipeline} stages pass {blocks / (each * pipeline):g} times, and once is "
            "modelled",
            field=words.place(word),
            value=each,
            remedy=f"use {blocks // pipeline}, or a pipeline that divides {blocks} layers",
        )


def _schedule(words: Words, setting: Setting, pipeline: int) -> tuple[int, PipelineSchedule]:
    virtual = words.optional_size("virtual") or _stages_a_rank(words, setting, pipeline)
    word = (words.text("schedule") or "1f1b").rpartition(".")[2].replace("_", "").replace("-", "")
    if pipeline == 1:
        return 1, PipelineSchedule.ONE_F_ONE_B
    schedule = _SCHEDULES.get(word.removesuffix("pipelineengine"))
    if schedule is None:
        raise DocumentError(
            "is not a schedule that is modelled",
            field=words.place("schedule"),
            value=words.get("schedule"),
            remedy="use 1F1B, GPipe or Interleaved1F1B",
        )
    if schedule is PipelineSchedule.INTERLEAVED and virtual == 1:
        words.said.append(f"{words.place('schedule')}: two virtual stages a rank are assumed")
        virtual = 2
    return virtual, PipelineSchedule.INTERLEAVED if virtual > 1 else schedule


def _stages_a_rank(words: Words, setting: Setting, pipeline: int) -> int:
    """Return the virtual stages of a rank where a stage has so many layers at most.

    Source: NeMo AutoModel, `pipelining/functional.py` (`calculate_virtual_stages`).

    Raises:
        DocumentError: if ranks would have several numbers of them, and no rounding is asked for.
    """
    each, blocks = words.optional_size("stage_layers"), setting.graph.block_count
    if each is None or pipeline == 1:
        return 1
    stages, rounding = -(-blocks // each), words.text("stage_rounding")
    if stages % pipeline and rounding is None:
        raise DocumentError(
            f"makes {stages} stages of the model's {blocks} blocks, which {pipeline} ranks do not "
            "share evenly",
            field=words.place("stage_layers"),
            value=each,
            remedy=f"use {blocks // pipeline}, or a divisor of it",
        )
    return max(stages // pipeline + (stages % pipeline > 0 and rounding == "up"), 1)


def _shard(words: Words) -> int:
    """Return the ranks that share states as the file has them, -1 for all that are left.

    An axis of experts (MaxText's) is one more over which they do.
    """
    shard = words.size("shard", -1, minimum=-1)
    return shard * max(words.size("expert_axis", 1, minimum=-1), 1) if shard > 0 else shard


def _data(words: Words, setting: Setting, sharding: Sharding, data: int) -> tuple[int, int]:
    """Return replicas and the ranks that share states, whose product is `data`."""
    stated = words.optional_size("data", minimum=-1)
    if stated is not None and stated > 0 and stated != data:
        raise _not_the_devices(words, "data", setting, data)
    group = _shard_group(words, setting, data)
    replicate = words.optional_size("replicate", minimum=-1)
    if sharding.hybrid and replicate is None and group < 1:
        replicate = words.size("node_count")
    if group > 0:
        replicate = data // group
    shard = _shard(words)
    if replicate == -1 and shard > 0:
        replicate = data // shard
    if not sharding.stage and "shard" not in words:
        return data, 1
    replicate = max(replicate or 1, 1)
    left, rest = divmod(data, replicate)
    if rest or (shard > 0 and shard != left) or (group > 0 and group != left):
        raise _not_the_devices(words, "shard" if "shard" in words else "replicate", setting, left)
    return replicate, left


def _shard_group(words: Words, setting: Setting, data: int) -> int:
    """Return the data-parallel ranks of a stated group of shards, -1 where none is stated.

    Raises:
        DocumentError: if it ends within the ranks that share a sequence.
    """
    group = words.size("shard_group", -1, minimum=-1)
    sharers = setting.device_count // data if words.fixed.get("shard_group_of_all_ranks") else 1
    if group < 1 or group >= setting.device_count:
        return -1
    if group % sharers:
        raise DocumentError(
            f"is not a multiple of the {sharers} ranks that share a sequence: not modelled",
            field=words.place("shard_group"),
            value=group,
            remedy=f"use a multiple of {sharers}",
        )
    return group // sharers


def _not_the_devices(words: Words, word: str, setting: Setting, left: int) -> DocumentError:
    return DocumentError(
        f"and the other sizes do not multiply to the cluster's {setting.device_count} devices: "
        f"{left} would",
        field=words.place(word),
        value=words.get(word),
        remedy="give the cluster that the file is for, or correct a size",
    )
