"""Rows of measured runs for tests: facts of public tables, copied by hand with their source."""

from __future__ import annotations

from typing import Any

from planner.schema.measured_run import MeasuredRun

TORCHTITAN = {
    # pytorch/torchtitan docs/performance.md @2847cccee: Llama-3-8B, 64 A100, 2,973 tokens/s each
    "id": "torchtitan-8b",
    "family": "torchtitan",
    "source": "pytorch/torchtitan docs/performance.md@2847cccee",
    "model": "llama3-8b",
    "task": "pretrain",
    "layers": 32,
    "hidden_size": 4096,
    "ffn_size": 14336,
    "heads": 32,
    "kv_heads": 8,
    "head_dim": 128,
    "vocab": 128256,
    "tied_embeddings": False,
    "activation": "swiglu",
    "attention_kind": "gqa",
    "position": "rope",
    "seq_len": 8192,
    "framework": "torchtitan",
    "gpu": "A100-SXM",
    "gpu_mem_gb": 80,
    "gpus_per_node": 8,
    "num_gpus": 64,
    "precision": "bf16",
    "dp": 64,
    "tp": 1,
    "pp": 1,
    "cp": 1,
    "sequence_parallel": False,
    "zero_stage": 3,
    "sharding": "fsdp2",
    "mbs": 1,
    "gbs": 64,
    "optimizer": "adamw",
    "recompute": "selective",
    "flash_attention": True,
    "outcome": "ok",
    "tokens_per_s_per_gpu": 2973.0,
}
KORTHIKANTI = {
    # Korthikanti et al. 2022, arXiv:2205.05198, table 5: 175B, full recomputation, 18.13 s
    "id": "korthikanti-175b",
    "family": "korthikanti22",
    "source": "arXiv:2205.05198 table 5",
    "model": "megatron-gpt-175B",
    "layers": 96,
    "hidden_size": 12288,
    "ffn_size": 49152,
    "heads": 96,
    "kv_heads": 96,
    "head_dim": 128,
    "vocab": 51200,
    "tied_embeddings": True,
    "activation": "gelu",
    "attention_kind": "mha",
    "position": "learned",
    "seq_len": 2048,
    "framework": "Megatron-LM",
    "gpu": "A100-SXM",
    "gpu_mem_gb": 80,
    "gpus_per_node": 8,
    "num_gpus": 64,
    "interconnect": "NVLink; 8x200 Gb/s HDR IB per node (Selene)",
    "precision": "fp16",
    "dp": 1,
    "tp": 8,
    "pp": 8,
    "vpp": 3,
    "sequence_parallel": False,
    "zero_stage": 0,
    "mbs": 1,
    "gbs": 64,
    "optimizer": "adam",
    "recompute": "full",
    "flash_attention": False,
    "pp_schedule": "interleaved-1f1b",
    "outcome": "ok",
    "step_time_s": 18.13,
}
MIXTURE = {
    # shape of mistralai/Mixtral-8x7B-v0.1 (config.json); the layout is of no published run
    "family": "own",
    "model": "mixtral",
    "layers": 32,
    "hidden_size": 4096,
    "ffn_size": 14336,
    "heads": 32,
    "kv_heads": 8,
    "head_dim": 128,
    "vocab": 32000,
    "tied_embeddings": False,
    "activation": "swiglu",
    "attention_kind": "gqa",
    "position": "rope",
    "moe_experts": 8,
    "moe_top_k": 2,
    "moe_ffn": 14336,
    "seq_len": 4096,
    "framework": "Megatron-Core",
    "gpu": "H100-SXM",
    "gpus_per_node": 8,
    "num_gpus": 64,
    "precision": "bf16",
    "dp": 16,
    "tp": 2,
    "pp": 2,
    "ep": 8,
    "etp": 1,
    "sequence_parallel": True,
    "zero_stage": 1,
    "mbs": 1,
    "gbs": 256,
    "recompute": "none",
}


def a_row(**changes: Any) -> dict[str, Any]:
    """The torchtitan row with changes."""
    return {**TORCHTITAN, **changes}


def a_run(base: dict[str, Any] = TORCHTITAN, /, **changes: Any) -> MeasuredRun:
    """A run of that row with changes."""
    return MeasuredRun.from_fields({**base, **changes}, source="a test")
