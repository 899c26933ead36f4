"""Megatron-LM: the strategy that its arguments say.

Flags, defaults and what they mean are of Megatron-LM 0.19.2, `megatron/training/arguments.py`. The
text may be a shell script: flags are looked for wherever they stand, and variables that it sets to
a plain value are put in.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from planner.errors import DocumentError
from planner.importers.megatron_layout import layout_counts
from planner.importers.training_config import (
    Setting,
    TrainingConfig,
    Treatment,
    data_parallel_degree,
    even_counts,
    require_counts,
)
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
_NUMBERS = {
    "--tensor-model-parallel-size",
    "--pipeline-model-parallel-size",
    "--num-virtual-stages-per-pipeline-rank",
    "--num-layers-per-virtual-pipeline-stage",
    "--decoder-first-pipeline-num-layers",
    "--decoder-last-pipeline-num-layers",
    "--context-parallel-size",
    "--expert-model-parallel-size",
    "--expert-tensor-parallel-size",
    "--micro-batch-size",
    "--global-batch-size",
    "--seq-length",
    "--recompute-num-layers",
    "--cpu-offloading-num-layers",
    "--num-distributed-optimizer-instances",
}
_WORDS = {
    "--pipeline-model-parallel-layout": None,
    "--cp-comm-type": ("p2p", "a2a", "allgather", "a2a+p2p"),
    "--recompute-granularity": ("full", "selective"),
    "--recompute-method": ("uniform", "block"),
    "--data-parallel-sharding-strategy": (
        "no_shard",
        "optim",
        "optim_grads",
        "optim_grads_params",
    ),
    "--optimizer-offload-fraction": None,
    "--fp8-format": None,
}
_LISTS = {"--recompute-modules"}
_FLAGS = {
    "--sequence-parallel",
    "--bf16",
    "--fp16",
    "--use-distributed-optimizer",
    "--overlap-grad-reduce",
    "--use-megatron-fsdp",
    "--use-torch-fsdp2",
    "--recompute-activations",
    "--optimizer-cpu-offload",
}
_KNOWN = _NUMBERS | set(_WORDS) | _LISTS | _FLAGS
_ASSIGNMENT = re.compile(
    r"^\s*(?:export\s+|local\s+)?([A-Za-z_]\w*)=([^\s()]*)\s*;?\s*(?:#.*)?$", re.MULTILINE
)
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?-([^}]*))?\})")
_FSDP_STAGES = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
_LIMIT = 2**24


def read_megatron(text: str, setting: Setting, *, source: str) -> TrainingConfig:
    """Return the strategy and the job that Megatron's arguments in `text` say.

    Raises:
        DocumentError: naming the flag, its value and the remedy.
    """
    return megatron_config(flags_in(text, source=source), setting)


def megatron_config(
    values: Mapping[str, list[str]], setting: Setting, *, format_name: str = "megatron-lm"
) -> TrainingConfig:
    """Return the strategy and the job that the flags' values say.

    Raises:
        DocumentError: naming the flag, its value and the remedy.
    """
    return _Reading(given=_Given(values=values), setting=setting).config(format_name)


def flags_in(text: str, *, source: str) -> dict[str, list[str]]:
    """Return the words after each known flag in `text`; the last of a repeated flag holds.

    Raises:
        DocumentError: if quotes are open, or a flag is all but one that is known.
    """
    try:
        words = shlex.split(_substituted(text.replace("\\\n", " ")), comments=True)
    except ValueError as error:
        raise DocumentError(
            f"cannot be read as arguments: {error}",
            field=source,
            remedy="close the quotes, or give a file with the arguments alone",
        ) from None
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    for word in words:
        if word.startswith("--") and len(word) > 2:
            name, _, value = word.partition("=")
            _require_spelled(name)
            current = found[name] = [value] if value else []
        elif current is not None:
            current.append(word)
    return {name: values for name, values in found.items() if name in _KNOWN}


def _substituted(text: str) -> str:
    """Return the text with variables that it sets to plain values put in, one in another too."""
    known = {name: value.strip("'\"") for name, value in _ASSIGNMENT.findall(text)}

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        return known.get(name) or (match[3] if match[3] is not None else match[0])

    for _ in range(3):
        text = _VARIABLE.sub(value, text)[: 4 * 2**20]
    return text


def _require_spelled(name: str) -> None:
    if name in _KNOWN:
        return
    near = get_close_matches(name, _KNOWN, n=1, cutoff=0.93)
    if near:
        raise DocumentError(
            "is no flag of Megatron-LM",
            field=name,
            remedy=f"did you mean {near[0]}?",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """The flags that were given, read by kind."""

    values: Mapping[str, list[str]]

    def has(self, name: str) -> bool:
        return name in self.values

    def number(self, name: str, default: int) -> int:
        return default if name not in self.values else self._number(name)

    def optional(self, name: str) -> int | None:
        return self._number(name) if name in self.values else None

    def _number(self, name: str) -> int:
        word = self.word(name) or ""
        if not re.fullmatch(r"\d{1,9}", word) or not 1 <= int(word) <= _LIMIT:
            variable = word.startswith("$")
            raise DocumentError(
                "is a shell variable that the file does not set"
                if variable
                else f"must be a whole number from 1 to {_LIMIT}",
                field=name,
                value=word,
                remedy="write its value" if variable else "write a positive integer",
            )
        return int(word)

    def word(self, name: str) -> str | None:
        if name not in self.values:
            return None
        words = self.values[name]
        if not words:
            raise DocumentError("has no value", field=name, remedy="write one after the flag")
        word = words[0].rstrip(")") if name != "--pipeline-model-parallel-layout" else words[0]
        allowed = _WORDS.get(name)
        if allowed is not None and word not in allowed:
            raise DocumentError(
                "is not among its values",
                field=name,
                value=word,
                remedy=f"use one of {', '.join(allowed)}",
            )
        return word

    def list(self, name: str) -> list[str]:
        return [word.rstrip(")") for word in self.values.get(name, [])]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    given: _Given
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
        if not given.has("--micro-batch-size") and self.setting.micro_batch_size is None:
            assumptions.append("--micro-batch-size is not given: 1")
        return TrainingConfig(
            format=format_name,
            strategy=strategy,
            job=self._job(micro * data),
            assumptions=tuple(assumptions),
            names=NAMES,
        )

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
        """Return the blocks of each virtual stage."""
        given, blocks = self.given, self.setting.graph.block_count
        layout = given.word("--pipeline-model-parallel-layout")
        if layout is not None:
            counts = layout_counts(layout, pipeline)
            require_counts(counts, self.setting, field_name="--pipeline-model-parallel-layout")
            return counts
        virtual = given.number("--num-virtual-stages-per-pipeline-rank", 1)
        each = given.optional("--num-layers-per-virtual-pipeline-stage")
        if each is not None:
            virtual = _whole(blocks, pipeline * each, "--num-layers-per-virtual-pipeline-stage")
        first = given.optional("--decoder-first-pipeline-num-layers")
        last = given.optional("--decoder-last-pipeline-num-layers")
        if pipeline == 1:
            return [blocks]
        if first is None and last is None:
            _whole(blocks, pipeline * virtual, "--pipeline-model-parallel-size")
            return even_counts(blocks, pipeline * virtual)
        counts = _uneven(blocks, pipeline, virtual, ends=(first, last))
        require_counts(counts, self.setting, field_name="--decoder-first-pipeline-num-layers")
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

    def _job(self, least_batch: int) -> dict[str, object]:
        given = self.given
        precision = "bf16" if given.has("--bf16") else "fp16" if given.has("--fp16") else "fp32"
        job: dict[str, object] = {
            "stack": "megatron",
            "global_batch_size": given.number("--global-batch-size", least_batch),
            "precision": "fp8" if given.has("--fp8-format") else precision,
            "overlapped_gradients": given.has("--overlap-grad-reduce"),
        }
        length = given.optional("--seq-length")
        if length is not None:
            job["sequence_length"] = length
        return job


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
