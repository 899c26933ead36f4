"""Layout: the strategy that a measured run used."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from planner.cost.orders import interleaved_round
from planner.schema.complaints import complaint_words
from planner.schema.job import Job, Stack
from planner.schema.measured_run import MeasuredRun
from planner.schema.model import MixtureFeedForward, ModelGraph
from planner.schema.strategy import (
    ActivationCheckpointing,
    LayerGroup,
    Offload,
    PipelineSchedule,
    Stage,
    Strategy,
)
from planner.validation.program import Program
from planner.validation.reasons import Assumption, Unpriceable, Unpriced

_BATCH_TOLERANCE_RATIO = 0.01
_SCHEDULES = {
    "gpipe": PipelineSchedule.GPIPE,
    "afab": PipelineSchedule.GPIPE,  # all forwards, all backwards: nanotron's word
    "1f1b": PipelineSchedule.ONE_F_ONE_B,
    "1f1b (deepspeed)": PipelineSchedule.ONE_F_ONE_B,
    "interleaved": PipelineSchedule.INTERLEAVED,
    "interleaved-1f1b": PipelineSchedule.INTERLEAVED,
    "1f1b-interleaved": PipelineSchedule.INTERLEAVED,
    "zb-v": PipelineSchedule.ZB_V,
    "zbv": PipelineSchedule.ZB_V,
    "dualpipe-v": PipelineSchedule.DUALPIPE_V,
    "dualpipev": PipelineSchedule.DUALPIPE_V,
}
# Ways to shard states, whatever the program, that split no layer
_SHARDS_STATES = re.compile(r"fsdp1?\b|fsdp:|zero|gemini")
_WITHOUT_PIPELINES = frozenset({2, 3})  # ZeRO stages
_ROUNDED_OFF = 1e-9  # what a share of whole blocks may be short of their number
_LAYERS_OFFLOADED = re.compile(r"(\d+) layers")
# Megatron's modules, of which it takes attention's core where none is named
_MODULES = re.compile(r"\b(core_attn|layernorm|mla_up_proj|mlp|moe|moe_act|shared_experts)\b")
_UNPRICED_MODULES = re.compile(r"\b(gdn_norm_out|gdp_in_proj|gdp_qkv|mhc)\b")
_CORE = "core_attn"
_ALIKE_STAGES = {
    "virtual_pipeline_degree": 1,
    "pipeline_schedule": PipelineSchedule.ONE_F_ONE_B,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A resolved strategy, the batch that it makes up, and what was assumed for it."""

    strategy: Strategy
    global_batch_size: int
    assumptions: tuple[Assumption, ...]


def layout_of(run: MeasuredRun, graph: ModelGraph, job: Job, program: Program) -> Layout:
    """Return the strategy of `run` for its model and job, as `program` has what is not stated.

    Raises:
        Unpriced: if a degree or the micro-batch is missing, the degrees do not go together, or a
            technique cannot be said in a strategy.
    """
    notes = _Notes(run=run, job=job, program=program)
    degrees = _degrees(run, graph, notes)
    batch, count = _batch(run, job, degrees.data, notes)
    schedule = _schedule(run, degrees, count)
    shard = _shard_degree(run, degrees.data)
    if run.vpp is None and degrees.virtual > 1:
        notes.assumptions.append(Assumption.VIRTUAL_STAGES_MOST)
    if _ends_are_stages(run, graph.block_count):
        notes.assumptions.append(Assumption.ENDS_AS_STAGES)
    elif degrees.virtual < (run.vpp or 1) and degrees.pipeline > 1:
        notes.assumptions.append(Assumption.FEWER_VIRTUAL_STAGES)
    fields: dict[str, Any] = {
        "tensor_parallel_degree": degrees.tensor,
        "sequence_parallel": notes.sequence_parallel(degrees.tensor),
        "pipeline_parallel_degree": degrees.pipeline,
        "virtual_pipeline_degree": degrees.virtual,
        "pipeline_schedule": schedule,
        "context_parallel_degree": degrees.context,
        "expert_parallel_degree": degrees.expert,
        "expert_tensor_parallel_degree": degrees.expert_tensor,
        "data_parallel_shard_degree": shard,
        "data_parallel_replicate_degree": degrees.data // shard,
        "micro_batch_size": batch // (count * degrees.data),
        "micro_batch_count": count,
        "zero_stage": notes.zero_stage(degrees.data),
        "activation_checkpointing": notes.checkpointing(),
    }
    return Layout(
        strategy=_resolved(run, fields, graph, batch),
        global_batch_size=batch,
        assumptions=tuple(notes.assumptions),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Degrees:
    tensor: int
    pipeline: int
    virtual: int
    context: int
    expert: int
    expert_tensor: int
    data: int


def _degrees(run: MeasuredRun, graph: ModelGraph, notes: _Notes) -> _Degrees:
    """Return the degrees as stated, data parallelism from the rest where it is not.

    Raises:
        Unpriced: if one is missing, or they do not multiply to the GPUs.
    """
    if run.num_gpus is None:
        raise Unpriced(Unpriceable.LAYOUT, "num_gpus")
    tensor, pipeline = notes.model_parallel(run.num_gpus)
    context = run.cp or 1
    others = tensor * pipeline * context
    data = run.dp if run.dp is not None else run.num_gpus // others
    if others * data != run.num_gpus:
        raise Unpriced(Unpriceable.PRODUCT, f"{others} x dp {data} for {run.num_gpus} GPUs")
    degrees = _Degrees(
        tensor=tensor,
        pipeline=pipeline,
        virtual=_virtual_degree(run, notes.program, graph.block_count),
        context=context,
        expert=run.ep or 1,
        expert_tensor=_expert_tensor_degree(run, holders=tensor * data * context, tensor=tensor),
        data=data,
    )
    _check_experts(degrees, graph)
    return degrees


def _expert_tensor_degree(run: MeasuredRun, *, holders: int, tensor: int) -> int:
    """Return the ranks that share an expert: as others do, or none where there are too few ranks.

    Source: Megatron-Core `parallel_state.py` (`expert_tensor_parallel_size`).
    """
    if run.etp is not None:
        return run.etp
    return tensor if holders % ((run.ep or 1) * tensor) == 0 else 1


def _virtual_degree(run: MeasuredRun, program: Program, block_count: int) -> int:
    """Return the virtual stages of a rank: as stated, where all can hold a block or are an end.

    Where a program's recipes of dense models interleave, most that state it have a layer a virtual
    stage.
    """
    if run.pp is None or run.pp == 1:
        return 1
    if _ends_are_stages(run, block_count):
        return run.vpp or 1
    most = max(block_count // run.pp, 1)
    unsaid = run.vpp is None and run.pp_schedule is None
    if unsaid and program.interleaves and not run.moe_experts:
        return most
    return min(run.vpp or 1, most)


def _ends_are_stages(run: MeasuredRun, block_count: int) -> bool:
    """Return whether embedding and loss are virtual stages of their own, beside a layer each.

    Source: Megatron-LM `--account-for-embedding-in-pipeline-split` and `-loss-`.
    """
    pipeline, virtual = run.pp or 1, run.vpp or 1
    return min(pipeline, virtual) > 1 and pipeline * virtual == block_count + 2


def _check_experts(degrees: _Degrees, graph: ModelGraph) -> None:
    parts = [part.block.feed_forward for part in graph.runs]
    experts = [part.expert_count for part in parts if isinstance(part, MixtureFeedForward)]
    if not experts:
        if degrees.expert > 1:
            raise Unpriced(Unpriceable.EXPERTS, f"ep {degrees.expert} and no experts")
        return
    holders = degrees.tensor * degrees.data * degrees.context
    if degrees.tensor % degrees.expert_tensor or holders % (degrees.expert * degrees.expert_tensor):
        raise Unpriced(
            Unpriceable.EXPERTS,
            f"ep {degrees.expert} x etp {degrees.expert_tensor} on {holders} ranks",
        )
    if experts[0] % degrees.expert:
        raise Unpriced(Unpriceable.EXPERTS, f"{experts[0]} experts on ep {degrees.expert}")


def _shard_degree(run: MeasuredRun, data: int) -> int:
    """Return the ranks that share model states: the stated group where it divides them."""
    group = run.shard_group_size
    if group is None or run.zero_stage in {None, 0} or data % group:
        return data
    return group


def _batch(run: MeasuredRun, job: Job, data: int, notes: _Notes) -> tuple[int, int]:
    """Return the sequences per step and the micro-batches of each rank.

    Raises:
        Unpriced: if the micro-batch is unknown, or does not make up the batch within 1 %.
    """
    stated = job.global_batch_size or 1
    size = 1 if run.mbs is None and stated == data else run.mbs
    if size is None:
        if run.grad_accum is None or stated % (run.grad_accum * data):
            raise Unpriced(Unpriceable.MICRO_BATCH, "mbs")
        return stated, run.grad_accum
    count = max(round(stated / (size * data)), 1)
    batch = size * count * data
    if abs(batch / stated - 1.0) > _BATCH_TOLERANCE_RATIO:
        raise Unpriced(
            Unpriceable.BATCH_DIVISION, f"mbs {size} x dp {data} does not divide gbs {stated}"
        )
    if batch != stated:
        notes.assumptions.append(Assumption.BATCH_ROUNDED)
    return batch, count


def _schedule(run: MeasuredRun, degrees: _Degrees, count: int) -> PipelineSchedule:
    """Return the schedule as stated; interleaved where ranks have several virtual stages.

    Raises:
        Unpriced: if it is not modelled, or cannot run so many micro-batches.
    """
    if degrees.pipeline == 1:
        return PipelineSchedule.ONE_F_ONE_B
    stated = (run.pp_schedule or "1f1b").lower()
    found = _SCHEDULES.get(re.sub(r"[_\s]+(?!\()", "-", stated))
    if found is None:
        raise Unpriced(Unpriceable.SCHEDULE, stated)
    if found is PipelineSchedule.ONE_F_ONE_B and degrees.virtual > 1:
        found = PipelineSchedule.INTERLEAVED
    if found is PipelineSchedule.INTERLEAVED:
        try:
            interleaved_round(degrees.pipeline, count)
        except ValueError as error:
            raise Unpriced(Unpriceable.SCHEDULE, f"interleaved: {error}") from None
    return found


@dataclass(slots=True, kw_only=True)
class _Notes:
    """What the row leaves open, decided, and the list of these decisions."""

    run: MeasuredRun
    job: Job
    program: Program
    assumptions: list[Assumption] = field(default_factory=list)

    def model_parallel(self, device_count: int) -> tuple[int, int]:
        """Return the degrees of tensor and pipeline parallelism.

        One device has none. A single one that is not stated is what the others leave of all
        devices. Frameworks that shard states alone have neither, where no row says so, nor have
        ZeRO's stages 2 and 3.
        """
        run = self.run
        if run.tp is not None and run.pp is not None:
            return run.tp, run.pp
        stated = run.tp or run.pp or 1
        if stated == 1 and device_count in {1, run.dp}:
            return 1, 1
        if (run.tp is not None or run.pp is not None) and run.dp is not None:
            rest, left = divmod(device_count, stated * run.dp * (run.cp or 1))
            if left == 0:
                return run.tp or rest, run.pp or rest
        if stated > 1 or not self._shards_alone():
            raise Unpriced(Unpriceable.LAYOUT, "tp or pp")
        self.assumptions.append(Assumption.DATA_PARALLEL_ALONE)
        return 1, 1

    def _shards_alone(self) -> bool:
        run = self.run
        words = f"{run.framework or ''} {run.sharding or ''}".lower()
        if self.program.shards_alone or _SHARDS_STATES.search(words) is not None:
            return True
        return self.job.stack is not Stack.MEGATRON and run.zero_stage in _WITHOUT_PIPELINES

    def sequence_parallel(self, tensor: int) -> bool:
        if tensor == 1:
            return False
        if self.run.sequence_parallel is None:
            self.assumptions.append(Assumption.SEQUENCE_PARALLEL)
            return self.job.stack is not Stack.DEEPSPEED
        return self.run.sequence_parallel

    def zero_stage(self, data: int) -> int:
        if self._keeps_whole_stages():
            self.assumptions.append(Assumption.WHOLE_STAGES)
            return 1
        if self.run.zero_stage is not None:
            return self.run.zero_stage
        if data == 1:
            return 0
        self.assumptions.append(Assumption.ZERO_STAGE)
        if "fsdp" in (self.run.sharding or "").lower():
            return 3
        return 1 if self.job.stack is Stack.MEGATRON else 0

    def _keeps_whole_stages(self) -> bool:
        """Return whether fully sharded pipeline stages stay gathered through the step.

        Plain torch shards nothing again after forward where there are pipelines, unless asked to,
        and reduces gradients after the last micro-batch: that is our stage 1.
        Source: torch `_composable/fsdp` as `parallelize_llama` uses it (`reshard_after_forward`).
        """
        run = self.run
        words = f"{run.sharding or ''}; {run.notes or ''}".lower()
        sharded = run.zero_stage == 3 or (run.zero_stage is None and "fsdp" in words)
        pipelined = (run.pp or 1) > 1 and self.job.stack is Stack.TORCH
        return pipelined and sharded and "reshard_after_forward=always" not in words

    def checkpointing(self) -> ActivationCheckpointing:
        run = self.run
        if run.recompute == "partial":
            raise Unpriced(Unpriceable.RECOMPUTE, run.recompute_detail or "partial")
        if run.recompute is None and self.program.checkpoints:
            self.assumptions.append(Assumption.RECOMPUTE_FULL)
            return ActivationCheckpointing.FULL
        if run.recompute is None:
            self.assumptions.append(Assumption.RECOMPUTE_NONE)
            return ActivationCheckpointing.NONE
        if run.recompute != "selective":
            return ActivationCheckpointing(run.recompute)
        if run.recompute_block_ratio is not None:
            return ActivationCheckpointing.NONE  # where blocks are not run again whole
        return self._selective()

    def _selective(self) -> ActivationCheckpointing:
        """Return the checkpointing of operations that run again: torch's, or Megatron's modules."""
        run = self.run
        if self.job.stack is Stack.TORCH:
            return ActivationCheckpointing.SELECTIVE
        unpriced = _UNPRICED_MODULES.search(run.recompute_detail or "")
        if unpriced is not None:
            raise Unpriced(Unpriceable.RECOMPUTE, unpriced[0])
        if _CORE in _modules(run) and not self.job.fused_attention:
            return ActivationCheckpointing.SELECTIVE
        if _MODULES.search(run.recompute_detail or "") is None:
            self.assumptions.append(Assumption.SELECTIVE_CORE)
        return ActivationCheckpointing.NONE


def parts_run_again(run: MeasuredRun, job: Job) -> frozenset[str]:
    """Return the parts of blocks that run again one by one, beside what a checkpointing says.

    Where attention writes its scores, to run its core again is a choice of checkpointing.
    """
    whole = run.recompute_block_ratio is not None
    if run.recompute != "selective" or whole or job.stack is Stack.TORCH:
        return frozenset()
    return _modules(run) if job.fused_attention else _modules(run) - {_CORE}


def _modules(run: MeasuredRun) -> frozenset[str]:
    """Return Megatron's modules as the row names them, else its default.

    Source: Megatron-LM `core/transformer/transformer_config.py` (`recompute_modules`).
    """
    return frozenset(_MODULES.findall(run.recompute_detail or "")) or frozenset({_CORE})


def _resolved(run: MeasuredRun, fields: dict[str, Any], graph: ModelGraph, batch: int) -> Strategy:
    """Return the strategy with its stages spelled out, offloaded layers first in each stage."""
    offload = _offload(run)
    fields["offload"] = tuple(item for item in offload if item is not Offload.ACTIVATIONS)
    try:
        ends = _ends_are_stages(run, graph.block_count)
        whole = Strategy.model_validate(fields | (_ALIKE_STAGES if ends else {})).resolved(
            block_count=graph.block_count, global_batch_size=batch
        )
        if ends:
            whole = _with_ends_apart(whole, fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise Unpriced(Unpriceable.LAYOUT, complaint_words(first)[0]) from None
    except ValueError as error:
        raise Unpriced(Unpriceable.STAGES, str(error)) from None
    if Offload.ACTIVATIONS in offload:
        moved = {"offload": (*fields["offload"], Offload.ACTIVATIONS)}
        whole = _changed_in_part(whole, _offloaded_ratio(run, graph.block_count), moved)
    if run.recompute_block_ratio is not None and run.recompute == "selective":
        again = {"activation_checkpointing": ActivationCheckpointing.FULL}
        whole = _changed_in_part(whole, run.recompute_block_ratio, again)
    return whole


def _with_ends_apart(strategy: Strategy, fields: Mapping[str, Any]) -> Strategy:
    """Return the strategy with a block in each virtual stage but the first and the last."""
    one = (strategy.stages or ())[0].layers[0]
    count = strategy.pipeline_parallel_degree * fields["virtual_pipeline_degree"] - 2
    groups = [one.model_copy(update={"first_block": n, "block_count": 1}) for n in range(count)]
    laid: list[tuple[LayerGroup, ...]] = [(), *((group,) for group in groups), ()]
    stages = tuple(Stage(stage=place, layers=own) for place, own in enumerate(laid))
    interleaved = {name: fields[name] for name in _ALIKE_STAGES}
    return strategy.model_copy(update={**interleaved, "stages": stages})


def _offload(run: MeasuredRun) -> tuple[Offload, ...]:
    if run.offload is not None and "fine_grained" in run.offload:
        raise Unpriced(Unpriceable.OFFLOAD, run.offload)
    if run.offload_grads and not run.offload_optimizer:
        raise Unpriced(Unpriceable.OFFLOAD, "offload_grads without offload_optimizer")
    stated = (
        (run.offload_optimizer, Offload.OPTIMIZER),
        (run.offload_params, Offload.PARAMETERS),
        (run.offload_activations, Offload.ACTIVATIONS),
    )
    return tuple(item for given, item in stated if given)


def _offloaded_ratio(run: MeasuredRun, block_count: int) -> float:
    """Return the share of blocks whose activations are kept on the host: as stated, or all."""
    match = _LAYERS_OFFLOADED.search(run.offload or "")
    return min(int(match[1]) / block_count, 1.0) if match else 1.0


def _changed_in_part(strategy: Strategy, ratio: float, change: Mapping[str, object]) -> Strategy:
    """Return the strategy with a share of its blocks changed.

    Block i is one of them where i r and (i + 1) r lie in different whole numbers, which spreads
    them; blocks of a stage that are alike may change places, so that they come first in it.
    """
    stages = []
    for stage in strategy.stages or ():
        parts = []
        for group in stage.layers:
            end = group.first_block + group.block_count
            before, after = (
                int(ratio * block + _ROUNDED_OFF) for block in (group.first_block, end)
            )
            count = after - before
            if count:
                parts.append(group.model_copy(update={"block_count": count, **change}))
            if count < group.block_count:
                rest = {
                    "first_block": group.first_block + count,
                    "block_count": group.block_count - count,
                }
                parts.append(group.model_copy(update=rest))
        stages.append(Stage(stage=stage.stage, layers=tuple(parts)))
    return strategy.model_copy(update={"stages": tuple(stages)})
