"""Stated: program variables that a row says in words where its columns do not.

Options of Megatron-Core and NVIDIA's configurations as logs and launch scripts print them, of
PaddleNLP, torchtitan and fine-tuning scripts, and kernels that are named for what they are.
"""

from __future__ import annotations

import re

from planner.importers.training.formats.llm_foundry import reduced_format
from planner.schema.measured_run import MeasuredRun

_Ways = tuple[tuple[re.Pattern[str], object], ...]


def _says(words: str) -> _Ways:
    return ((re.compile(words, re.IGNORECASE), True),)


# By column: the first pattern that the words have says its value. Of Megatron-Core's graphs
# `transformer_engine` captures parts of a layer alone, and routing by itself is a small one.
# An update as soon as a gradient is there is named so by torchtune, LOMO and LLaMA-Factory's
# BAdam and GaLore. torchtitan's selective checkpointing can be of every second block, whole.
# Megatron-Bridge's recipes of these names for GB200 end by `_enable_*_full_iteration_mxfp8`, which
# overrides what stands above it: whole iterations are captured, and exchanges with experts hidden.
# Source: `src/megatron/bridge/perf_recipes/{deepseek,qwen}/{common,gb200/*}.py`.
_CAPTURING_RECIPE = r"\brecipe (deepseek_v3|qwen3_\w+)_pretrain_\d+gpu_gb200_fp8mx_config\b"
_VARIABLES: dict[str, _Ways] = {
    "norm_kernel": (
        (re.compile(r"\bRMS(Norm)? kernel\b|\buse_fused_rms_norm=(1|True)\b"), "fused"),
        (re.compile(r"\bnorm kernel: (?!.*RMS)|\buse_fused_rms_norm=(0|False)\b"), "unfused"),
    ),
    "attention_kernel": (
        (re.compile(r"\bflash_?attention_?(v1|1)\b", re.IGNORECASE), "flash1"),
        (re.compile(r"\bflash_?attention_?(v?2)\b", re.IGNORECASE), "flash2"),
        (re.compile(r"\bflash_?attention_?(v?3)\b", re.IGNORECASE), "flash3"),
    ),
    # Of Megatron without the option backward's are so all the same.
    "tensor_parallel_overlap": (
        (re.compile(r"\basync(hronous)? ?TP\b|\bTP_COMM_OVERLAP=(1|True)\b", re.IGNORECASE), True),
        (re.compile(r"\bvanilla TP\b", re.IGNORECASE), False),
    ),
    "gathered_in_8_bits": _says(r"\b(float8|fp8|f8) all-?gather\b"),
    "gradient_reduction": ((re.compile(r"\bfp32 gradient all-?reduce\b"), "all_reduce"),),
    "dispatcher": (
        (re.compile(r"\bmoe_flex_dispatcher_backend=['\"]?(deepep|hybridep)\b"), "flex"),
    ),
    "cuda_graphs": (
        (re.compile(rf"\bcuda_graph_impl=(full_iteration|local)\b|{_CAPTURING_RECIPE}"), "full"),
        (re.compile(r"\b(MCORE|LAYER|FULL)_CUDA_GRAPH=(1|True)\b"), "full"),
        (re.compile(r"\bcuda_graph_scope=\[[^\]]*'attn'[^\]]*'moe_router'"), "attention"),
        (re.compile(r"\b(MCORE|LAYER|FULL)_CUDA_GRAPH=(0|False)\b"), "none"),
    ),
    "fixed_expert_tokens": _says(
        r"\bvariant tokendrop\b|\bmoe_pad_expert_input_to_capacity=True\b"
    ),
    "overlapped_experts": _says(rf"\bmoe_a2a_overlap=True\b|{_CAPTURING_RECIPE}"),
    "steps_in_backward": _says(
        r"optimizer_in_bwd|fuse_optimizer_in_backward|\bada?lomo\b|layerwise"
    ),
    "adapted_ends": _says("lora_emb"),
    "varied_lengths": _says(r"\bunpacked_data\b|\bvariable[_ -]length(_data)?\b"),
    "recompute_block_ratio": ((re.compile(r"\bevery (2nd|second|other) layer\b"), 0.5),),
}
# `--fp8-param-gather`, which Megatron-LM's own tests name "native fp8".
_IN_8_BITS_ALONE = re.compile(r"native[_ ]fp8|\bfp8[-_]param[-_]gather\b", re.IGNORECASE)
_RANK = re.compile(r"\brank[ =](\d{1,5})\b", re.IGNORECASE)
_BLOCKING = re.compile(r"\bCUDA_LAUNCH_BLOCKING=1\b(?P<nodes> on multi-node runs)?")
_COMPOSER_MODE = re.compile(r"\bMP mode=(\w+)")  # `mixed_precision` in tables of llm-foundry
_USUAL_NODE = 8


def with_variables(run: MeasuredRun) -> MeasuredRun:
    """Return the run with what its words state in columns that it leaves open."""
    words = "; ".join(
        text
        for text in (
            run.optimizer,
            run.recompute_detail,
            run.interconnect,
            run.sharding,
            run.notes,
            *(run.flags or ()),
        )
        if text
    )
    found = {column: _value(words, ways) for column, ways in _VARIABLES.items()}
    rank = _RANK.search(words)
    found["adapter_rank"] = int(rank[1]) if rank and int(rank[1]) else None
    found["blocking_launches"] = _blocks(run, words)
    if _IN_8_BITS_ALONE.search(f"{run.model}; {words}"):
        found["copies_in_8_bits"] = False
    mode = _COMPOSER_MODE.search(words)
    found["gradient_dtype"] = None if mode is None else reduced_format(mode[1])
    said = {
        column: value
        for column, value in found.items()
        if value is not None and getattr(run, column) is None
    }
    return run.model_copy(update=said) if said else run


def _value(words: str, ways: _Ways) -> object:
    return next((value for pattern, value in ways if pattern.search(words)), None)


def _blocks(run: MeasuredRun, words: str) -> bool | None:
    """Return whether the host waited for each kernel, as the row says of runs of its kind."""
    said = _BLOCKING.search(words)
    if said is None:
        return None
    several = (run.num_gpus or 0) > (run.gpus_per_node or _USUAL_NODE)
    return several if said["nodes"] is not None else True
