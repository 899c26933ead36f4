"""Megatron-LM: the strategy that its arguments say.

Flags (`planner.importers.training.megatron_flags`), defaults and what they mean are of Megatron-LM
0.19.2, `megatron/training/arguments.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from planner.errors import DocumentError
from planner.importers.training.config import (
    Setting,
    TrainingConfig,
    Treatment,
    data_parallel_degree,
    require_counts,
    require_models,
)
from planner.importers.training.megatron_beside import hold_sizes, not_priced
from planner.importers.training.megatron_flags import Flags, flags_in
from planner.importers.training.megatron_hybrid import HYBRID_FLAGS, hybrid_counts
from planner.importers.training.megatron_layout import layout_counts
from planner.schema.model import MixtureFeedForward
from planner.schema.strategy import (
    ActivationCheckpointing,
    ContextParallelKind,
    Offload,
    PipelineSchedule,
    Strategy,
)

NAMES = {
    "tensor_parallel_degree": "--tensor-model-parallel-size",
    "sequence_parallel": "--sequence-parallel",
    "pipeline_parallel_degree": "--pipeline-model-parallel-size",
    "virtual_pipeline_degree": "--num-virtual-stages-per-pipeline-rank",
    "pipeline_schedule": "--num-virtual-stages-per-pipeline-rank",
    "context_parallel_degree": "--context-parallel-size",
    "context_parallel_kind": "--cp-comm-type",
    "expert_parallel_degree": "--expert-model-parallel-size",
    "expert_tensor_parallel_degree": "--expert-tensor-parallel-size",
    "data_parallel_replicate_degree": "--num-distributed-optimizer-instances",
    "micro_batch_size": "--micro-batch-size",
    "global_batch_size": "--global-batch-size",
    "sequence_length": "--seq-length",
    "zero_stage": "--use-distributed-optimizer",
    "activation_checkpointing": "--recompute-granularity",
}
_ENDS = ("--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split")
_LAYOUT = "--pipeline-model-parallel-layout"
_CONTRADICTIONS = (
    ("--bf16", "--fp16"),
    ("--use-megatron-fsdp", "--use-torch-fsdp2"),
    ("--num-virtual-stages-per-pipeline-rank", "--num-layers-per-virtual-pipeline-stage"),
    (_LAYOUT, "--num-virtual-stages-per-pipeline-rank"),
    (_LAYOUT, "--num-layers-per-virtual-pipeline-stage"),
    (_LAYOUT, "--decoder-first-pipeline-num-layers"),
    (_LAYOUT, "--decoder-last-pipeline-num-layers"),
    (_LAYOUT, _ENDS[0]),
    (_LAYOUT, _ENDS[1]),
    (HYBRID_FLAGS[0], HYBRID_FLAGS[1]),
    (HYBRID_FLAGS[0], _LAYOUT),
    (HYBRID_FLAGS[0], "--num-virtual-stages-per-pipeline-rank"),
    (HYBRID_FLAGS[0], "--num-layers-per-virtual-pipeline-stage"),
)
_NUMBER_FORMATS = ("--bf16", "--fp16", "--fp32", "--fp8", "--fp8-format")
_OPTIMIZERS = {"adam": "adamw", "sgd": "sgd", "muon": "muon", "dist_muon": "muon"}
_DROPOUTS = ("--attention-dropout", "--hidden-dropout")
_FSDP_STAGES = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}


def read_megatron(text: str, setting: Setting, *, source: str) -> TrainingConfig:
    """Return the strategy and the job that Megatron's arguments in `text` say.

    Raises:
        DocumentError: naming the flag, its value and the remedy.
    """
    found = flags_in(text, source=source)
    if not found.values:
        raise DocumentError(
            "has no flag that says a batch or a parallelism to Megatron-LM",
            field=source,
            remedy="give the arguments of pretrain_gpt.py, --micro-batch-size among them",
        )
    config = megatron_config(found.values, setting)
    silent = [flag for flag in _DROPOUTS if flag not in found.values]
    dropout = {"dropout": True} if silent else {}
    said = (*found.assumptions, *config.assumptions, *not_priced(found.others), *_dropped(silent))
    return replace(
        config, assumptions=said, job={**config.job, **dropout, **_narrow_gradients(found.values)}
    )


def _narrow_gradients(values: Mapping[str, list[str]]) -> dict[str, object]:
    """Return that gradients of fp16 stay in 16 bits, unless an option asks otherwise.

    Source: `megatron/training/arguments.py` (`accumulate_allreduce_grads_in_fp32`).
    """
    wide = "--accumulate-allreduce-grads-in-fp32" in values
    return {} if wide or "--fp16" not in values else {"gradients_in_16_bits": True}


def _dropped(silent: Sequence[str]) -> tuple[str, ...]:
    """Return what Megatron-LM does without flags of dropout: its arguments have 0.1."""
    if not silent:
        return ()
    return (f"without {' and '.join(silent)} Megatron-LM drops out 0.1, whose masks are priced",)


def megatron_config(
    values: Mapping[str, list[str]], setting: Setting, *, format_name: str = "megatron-lm"
) -> TrainingConfig:
    """Return the strategy and the job that the flags' values say.

    Raises:
        DocumentError: naming the flag, its value and the remedy.
    """
    return _Reading(given=Flags(values=values), setting=setting).config(format_name)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    given: Flags
    setting: Setting

    def config(self, format_name: str) -> TrainingConfig:
        """Return all that the flags say."""
        given = self.given
        tensor = given.number("--tensor-model-parallel-size", 1)
        pipeline = given.number("--pipeline-model-parallel-size", 1)
        context = given.number("--context-parallel-size", 1)
        data = data_parallel_degree(
            self.setting,
            {
                "--tensor-model-parallel-size": tensor,
                "--pipeline-model-parallel-size": pipeline,
                "--context-parallel-size": context,
            },
        )
        self._require_agreement()
        counts = self._counts(pipeline)
        virtual = len(counts) // pipeline
        micro = self.setting.micro_batch_size or given.number("--micro-batch-size", 1)
        instances = self._instances(data)
        assumptions: list[str] = []
        strategy = Strategy(
            tensor_parallel_degree=tensor,
            sequence_parallel=given.has("--sequence-parallel") and tensor > 1,
            pipeline_parallel_degree=pipeline,
            virtual_pipeline_degree=virtual,
            pipeline_schedule=PipelineSchedule.INTERLEAVED
            if virtual > 1
            else PipelineSchedule.ONE_F_ONE_B,
            context_parallel_degree=context,
            context_parallel_kind=self._context_kind(assumptions),
            expert_parallel_degree=given.number("--expert-model-parallel-size", 1),
            expert_tensor_parallel_degree=given.number("--expert-tensor-parallel-size", tensor),
            data_parallel_shard_degree=data // instances,
            data_parallel_replicate_degree=instances,
            micro_batch_size=micro,
            stages=self._treatment(assumptions).stages(counts),
        )
        if not any(given.has(flag) for flag in _NUMBER_FORMATS):
            assumptions.append("neither --bf16 nor --fp16 is given: fp32, as Megatron-LM has it")
        if given.has("--deepspeed-config"):
            assumptions.append(
                f"--deepspeed-config {given.word('--deepspeed-config')} is not read: of ZeRO and "
                "the number format only the flags count"
            )
        if not given.has("--micro-batch-size") and self.setting.micro_batch_size is None:
            assumptions.append("--micro-batch-size is not given: 1")
        return TrainingConfig(
            format=format_name,
            strategy=strategy,
            job=self._job(micro * data, assumptions),
            assumptions=tuple(assumptions),
            names=NAMES,
        )

    def _require_agreement(self) -> None:
        """Raise where flags say two things, or the model is another."""
        given, graph = self.given, self.setting.graph
        for first, second in _CONTRADICTIONS:
            if given.has(first) and given.has(second):
                raise DocumentError(
                    f"contradicts {first}, which is given as well",
                    field=second,
                    remedy="leave one of them out",
                )
        for flag, found in (
            ("--num-layers", graph.decoder_layer_count),
            ("--hidden-size", graph.hidden_size),
        ):
            if given.has(flag):
                require_models(flag, given.number(flag, 1), found)
        hold_sizes(given, graph)

    def _instances(self, data: int) -> int:
        instances = self.given.number("--num-distributed-optimizer-instances", 1)
        if data % instances:
            raise DocumentError(
                f"does not divide the {data} data-parallel ranks",
                field="--num-distributed-optimizer-instances",
                value=instances,
                remedy=f"use a divisor of {data}",
            )
        return instances

    def _counts(self, pipeline: int) -> list[int]:
        """Return the blocks of each virtual stage; Megatron counts the decoder's alone.

        A tower is beside the embedding.
        """
        graph = self.setting.graph
        given_pattern = self._hybrid_pattern()
        if pipeline > 1 and graph.is_hybrid and given_pattern is not None:
            return hybrid_counts(given_pattern[1], graph, pipeline, flag=given_pattern[0])
        if pipeline > 1 and (graph.cross_sources() or graph.is_hybrid):
            raise DocumentError(
                f"cuts {graph.name} where no block of it ends: its {graph.block_count} blocks are "
                "not Megatron's decoder layers",
                field="--pipeline-model-parallel-size",
                value=pipeline,
                remedy="use 1, or cut stages by | in --hybrid-layer-pattern"
                if graph.is_hybrid
                else "use 1, or write the stages as a strategy of your own",
            )
        counts = self._decoder_counts(pipeline)
        counts[0] += graph.tower_block_count
        first = "--decoder-first-pipeline-num-layers"
        said = next((flag for flag in (_LAYOUT, first) if self.given.has(flag)), _ENDS[0])
        require_counts(counts, self.setting, field_name=said)
        return counts

    def _hybrid_pattern(self) -> tuple[str, str] | None:
        """Return the flag of a hybrid's letters, and what it says."""
        for flag in HYBRID_FLAGS:
            word = self.given.word(flag)
            if word is not None:
                return flag, word
        return None

    def _decoder_counts(self, pipeline: int) -> list[int]:
        given, graph = self.given, self.setting.graph
        blocks = graph.block_count - graph.tower_block_count
        layout = given.word(_LAYOUT)
        if layout is not None:
            return layout_counts(layout, pipeline)
        virtual = given.number("--num-virtual-stages-per-pipeline-rank", 1)
        each = given.optional("--num-layers-per-virtual-pipeline-stage")
        if each is not None:
            virtual = _whole(blocks, pipeline * each, "--num-layers-per-virtual-pipeline-stage")
        first = given.optional("--decoder-first-pipeline-num-layers")
        last = given.optional("--decoder-last-pipeline-num-layers")
        if pipeline == 1:
            return [blocks]
        if first is None and last is None:
            return self._even(blocks, pipeline * virtual)
        return _uneven(blocks, pipeline, virtual, ends=(first, last))

    def _even(self, blocks: int, stages: int) -> list[int]:
        """Return stages alike, where embedding and loss may count as a block each."""
        ends = [self.given.has(flag) for flag in _ENDS]
        each = _whole(blocks + sum(ends), stages, "--pipeline-model-parallel-size")
        counts = [each] * stages
        counts[0] -= ends[0]
        counts[-1] -= ends[1]
        return counts

    def _context_kind(self, assumptions: list[str]) -> ContextParallelKind:
        word = self.given.word("--cp-comm-type") or "p2p"
        if word in {"allgather", "a2a+p2p"}:
            assumptions.append(f"--cp-comm-type {word} is priced as p2p")
        return ContextParallelKind.ALL_TO_ALL if word == "a2a" else ContextParallelKind.RING

    def _treatment(self, assumptions: list[str]) -> Treatment:
        given = self.given
        moved = given.optional("--cpu-offloading-num-layers") or 0
        offload = (Offload.OPTIMIZER,) if given.has("--optimizer-cpu-offload") else ()
        fraction = given.word("--optimizer-offload-fraction")
        if offload and fraction not in {None, "1", "1.0"}:
            assumptions.append(f"--optimizer-offload-fraction {fraction} is priced as 1")
        kept, first = self._recomputing(assumptions)
        return Treatment(
            zero_stage=self._zero_stage(),
            activation_checkpointing=kept,
            offload=offload,
            first_full=first,
            offloaded_blocks=moved,
        )

    def _zero_stage(self) -> int:
        given = self.given
        if given.has("--use-megatron-fsdp"):
            word = given.word("--data-parallel-sharding-strategy") or "no_shard"
            return _FSDP_STAGES[word]
        if given.has("--use-torch-fsdp2"):
            return 3
        if given.has("--zero-stage"):  # of Megatron-DeepSpeed
            return int(given.word("--zero-stage") or 0)
        return 1 if given.has("--use-distributed-optimizer") else 0

    def _recomputing(self, assumptions: list[str]) -> tuple[ActivationCheckpointing, int]:
        """Return what all blocks keep, and how many first ones of a stage keep their input only."""
        given = self.given
        none = ActivationCheckpointing.NONE
        granularity = given.word("--recompute-granularity")
        if granularity is None and given.has("--recompute-activations"):
            granularity = "selective"
        if granularity is None:
            return none, 0
        if granularity == "full":
            number = given.number("--recompute-num-layers", 1)
            if given.word("--recompute-method") == "block":
                return none, number
            if number > 1:
                assumptions.append(
                    f"--recompute-num-layers {number} of method uniform is priced as 1"
                )
            return ActivationCheckpointing.FULL, 0
        modules = set(given.list("--recompute-modules")) or {"core_attn"}
        heavy = {"moe"} if _has_experts(self.setting) else {"mlp"}
        if heavy & modules or (_has_experts(self.setting) and "mlp" in modules):
            return ActivationCheckpointing.SELECTIVE, 0
        assumptions.append(
            f"recomputing {' '.join(sorted(modules))} is priced as none: fused attention keeps "
            "no scores"
        )
        return none, 0

    def _job(self, least_batch: int, assumptions: list[str]) -> dict[str, object]:
        given = self.given
        precision = "bf16" if given.has("--bf16") else "fp16" if given.has("--fp16") else "fp32"
        job: dict[str, object] = {
            "stack": "megatron",
            "global_batch_size": self.setting.global_batch_size
            or given.number("--global-batch-size", least_batch),
            "precision": "fp8" if given.has("--fp8-format") else precision,
            "overlapped_gradients": given.has("--overlap-grad-reduce"),
        }
        dispatcher = given.word("--moe-token-dispatcher-type")
        if dispatcher == "allgather":
            assumptions.append("--moe-token-dispatcher-type allgather is priced as alltoall")
        if dispatcher is not None:
            job["deduplicated_dispatch"] = dispatcher == "flex"
        if given.has("--fp8-format") and not given.has("--fp8-param-gather"):
            job["copies_in_8_bits"] = True
        if given.has("--tp-comm-overlap"):
            job["overlapped_tensor_parallel"] = True
        length = given.optional("--seq-length")
        if length is not None:
            job["sequence_length"] = length
        return {**job, **self._numerics(assumptions)}

    def _numerics(self, assumptions: list[str]) -> dict[str, object]:
        """Return the optimizer and what else of a step's numbers its flags say."""
        given, job = self.given, dict[str, object]()
        named = given.word("--optimizer")
        if named is not None and named not in _OPTIMIZERS:
            assumptions.append(f"--optimizer {named} is priced as adamw")
        elif named is not None and named != "adam":
            job["optimizer"] = _OPTIMIZERS[named]
        if _number(given.word("--clip-grad")) == 0:
            job["gradient_clipping"] = False
        if any(_number(given.word(flag)) for flag in _DROPOUTS):
            job["dropout"] = True
        if given.has("--cross-entropy-loss-fusion"):
            job["fused_loss"] = True
        if given.has("--grad-reduce-in-bf16"):
            job["gradients_in_16_bits"] = True
        return job


def _number(word: str | None) -> float | None:
    """Return a number, None where there is none or a variable that the file does not set."""
    try:
        return None if word is None else float(word)
    except ValueError:
        return None


def _has_experts(setting: Setting) -> bool:
    return any(isinstance(r.block.feed_forward, MixtureFeedForward) for r in setting.graph.runs)


def _whole(blocks: int, parts: int, flag: str) -> int:
    """Return blocks / parts.

    Raises:
        DocumentError: if that is not whole, naming `flag`.
    """
    if parts < 1 or blocks % parts:
        raise DocumentError(
            f"Megatron divides the model's {blocks} blocks evenly, and {parts} stages do not "
            "divide them",
            field=flag,
            value=parts,
            remedy="use a divisor, or say the stages in --pipeline-model-parallel-layout",
        )
    return blocks // parts


def _uneven(
    blocks: int, pipeline: int, virtual: int, *, ends: tuple[int | None, int | None]
) -> list[int]:
    """Return the blocks of virtual stages where the first or the last rank has its own number.

    Source: `get_num_layers_to_build` of `transformer_block.py`.
    """
    first, last = ends
    given = [count for count in ends if count is not None]
    rest = blocks - sum(given)
    others = pipeline - len(given)
    flag = "--decoder-first-pipeline-num-layers"
    each = _whole(rest, others, flag) if others else 0
    ranks = [
        first
        if index == 0 and first is not None
        else last
        if index == pipeline - 1 and last is not None
        else each
        for index in range(pipeline)
    ]
    shares = [_whole(count, virtual, flag) for count in ranks]
    return [share for _ in range(virtual) for share in shares]
