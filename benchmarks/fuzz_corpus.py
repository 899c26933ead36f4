"""Fuzz corpus: small valid documents of every kind, from which broken ones are made."""

from __future__ import annotations

from random import Random
from typing import Any

from benchmarks.mutations import mistaken, mutated

STRATEGY_SHARE = 0.4
MISTAKEN_SHARE = 0.3

_DENSE = {
    "attention": {
        "kind": "grouped_query",
        "head_count": 4,
        "key_value_head_count": 2,
        "head_size": 16,
    },
    "feed_forward": {"kind": "dense", "ffn_size": 128, "gated": True},
    "norm": "rms",
}
_MIXTURE = {
    **_DENSE,
    "feed_forward": {
        "kind": "mixture",
        "expert_count": 4,
        "experts_per_token": 2,
        "expert_ffn_size": 64,
        "shared_ffn_size": 64,
    },
}
_LATENT = {
    "attention": {
        "kind": "latent",
        "head_count": 4,
        "query_rank": 32,
        "key_value_rank": 16,
        "no_position_head_size": 16,
        "rotary_head_size": 8,
        "value_head_size": 16,
    },
    "feed_forward": {"kind": "dense", "ffn_size": 128},
}
_PICKING = {
    **_LATENT,
    "attention": {
        **_LATENT["attention"],
        "index": {"head_count": 2, "head_size": 16, "entries_per_token": 512},
    },
}
_SCAN = {
    **_DENSE,
    "attention": {"kind": "none"},
    "mixer": {"kind": "selective_scan", "inner_width": 128, "state_size": 16, "step_rank": 4},
}
_CONVOLUTION = {
    **_DENSE,
    "attention": {"kind": "none"},
    "mixer": {"kind": "short_convolution", "inner_width": 64},
}


def _graph(runs: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "name": "small",
        "architecture": "synthetic",
        "hidden_size": 64,
        "vocabulary_size": 256,
        "tied_embeddings": False,
        "maximum_sequence_length": 2048,
        "runs": runs,
    }


_HUGGING_FACE = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 2048,
}

MODELS: tuple[dict[str, Any], ...] = (
    _graph([{"block": _DENSE, "block_count": 4}]),
    _graph([{"block": _DENSE, "block_count": 1}, {"block": _MIXTURE, "block_count": 3}]),
    _graph([{"block": _LATENT, "block_count": 2}, {"block": _DENSE, "block_count": 2}]),
    _graph(
        [
            {
                "part": "encoder",
                "block_count": 2,
                "hidden_size": 32,
                "tokens_per_sequence": 64,
                "entry": {"products": [{"inner_size": 48, "outer_size": 32}]},
                "exit": {
                    "products": [{"inner_size": 32, "outer_size": 64}],
                    "output_size": 64,
                },
                "block": {
                    **_DENSE,
                    "attention": {
                        "kind": "grouped_query",
                        "head_count": 2,
                        "key_value_head_count": 2,
                        "head_size": 16,
                        "causal": False,
                    },
                },
            },
            {"block": _DENSE, "block_count": 2},
        ]
    ),
    {"model_type": "llama", "tie_word_embeddings": False, **_HUGGING_FACE},
    {"model_type": "qwen3", "head_dim": 16, **_HUGGING_FACE},
    {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2, **_HUGGING_FACE},
    {
        "model_type": "gpt2",
        "n_embd": 64,
        "n_head": 4,
        "n_layer": 4,
        "n_positions": 2048,
        "vocab_size": 256,
    },
    {"model_type": "gemma2", "sliding_window": 128, "head_dim": 16, **_HUGGING_FACE},
    _graph([{"block": _PICKING, "block_count": 3}]),
    _graph([{"block": _SCAN, "block_count": 2}, {"block": _CONVOLUTION, "block_count": 2}]),
)
CLUSTERS: tuple[Any, ...] = (
    "2xh100-sxm5-80gb",
    "2x2xa100-sxm4-40gb",
    {
        "schema_version": 1,
        "name": "node",
        "node_groups": [
            {
                "name": "h100",
                "device": "h100-sxm5-80gb",
                "node_count": 1,
                "devices_per_node": 4,
                "memory_bytes": "40 GiB",
                "host_memory_bytes": 64e9,
                "price_per_device_hour": 2.5,
            }
        ],
    },
    {
        "name": "racks",
        "node_groups": [
            {"name": "b", "device": "b200-sxm-180gb", "node_count": 2, "devices_per_node": 2}
        ],
        "levels": [
            {
                "name": "node",
                "device_count": 2,
                "bandwidth_bytes_per_second": 4e11,
                "latency_seconds": 1e-5,
            },
            {
                "name": "all",
                "bandwidth_bytes_per_second": 5e10,
                "latency_seconds": 2e-5,
                "oversubscription": 2.0,
            },
        ],
    },
    {
        "name": "mixed",
        "node_groups": [
            {"name": "h", "device": "h100-sxm5-80gb", "node_count": 1, "devices_per_node": 2},
            {"name": "a", "device": "a100-sxm4-80gb", "node_count": 1, "devices_per_node": 2},
        ],
    },
)
STRATEGIES: tuple[dict[str, Any], ...] = (
    {"tensor_parallel_degree": 2, "zero_stage": 1},
    {"data_parallel_degree": 4, "zero_stage": 3, "offload": ["optimizer"]},
    {
        "schema_version": 1,
        "tensor_parallel_degree": 1,
        "sequence_parallel": False,
        "pipeline_parallel_degree": 2,
        "virtual_pipeline_degree": 1,
        "pipeline_schedule": "1f1b",
        "context_parallel_degree": 1,
        "context_parallel_kind": "ring",
        "expert_parallel_degree": 1,
        "data_parallel_replicate_degree": 1,
        "data_parallel_shard_degree": 2,
        "micro_batch_size": 1,
        "micro_batch_count": 4,
        "stages": [
            {
                "stage": index,
                "layers": [
                    {
                        "first_block": 2 * index,
                        "block_count": 2,
                        "zero_stage": 1,
                        "activation_checkpointing": "selective",
                        "offload": [],
                    }
                ],
            }
            for index in range(2)
        ],
        "embedding": {"zero_stage": 0, "offload": []},
        "head": {"zero_stage": 1, "offload": []},
    },
    {"pipeline_parallel_degree": 4, "pipeline_schedule": "zb_v"},
    {
        "pipeline_parallel_degree": 2,
        "virtual_pipeline_degree": 2,
        "pipeline_schedule": "interleaved_1f1b",
        "data_parallel_degree": 2,
    },
)


def job_fields(solver_seconds: float) -> dict[str, Any]:
    """Return a job with every field and the limits that keep its space small."""
    return {
        "schema_version": 1,
        "global_batch_size": 8,
        "sequence_length": 1024,
        "precision": "bf16",
        "optimizer": "adamw",
        "stack": "torch",
        "objective": "throughput",
        "limits": {
            "tensor_parallel_degree": {"min": 1, "max": 2},
            "pipeline_parallel_degree": {"min": 1, "max": 2},
            "context_parallel_degree": 1,
            "micro_batch_size": {"min": 1, "max": 2},
            "zero_stages": [0, 1, 3],
            "activation_checkpointing": ["none", "full"],
            "offload": [],
            "pipeline_schedules": ["1f1b"],
            "memory_headroom_ratio": 0.05,
            "solver_seconds": solver_seconds,
        },
    }


def fuzzed_request(random: Random, *, solver_seconds: float) -> dict[str, Any]:
    """Return documents by what they are, of which one or two are broken.

    Those with a strategy ask for its price, the others for a plan. A broken job keeps its time
    limit, so that the time of a run is bounded.
    """
    documents: dict[str, Any] = {
        "model": random.choice(MODELS),
        "cluster": random.choice(CLUSTERS),
        "job": job_fields(solver_seconds),
    }
    if random.random() < STRATEGY_SHARE:
        documents["strategy"] = random.choice(STRATEGIES)
    for kind in random.sample(sorted(documents), random.choice((1, 1, 1, 2))):
        change = mistaken if random.random() < MISTAKEN_SHARE else mutated
        documents[kind] = change(documents[kind], random)
    limits = documents["job"].get("limits") if isinstance(documents["job"], dict) else None
    if isinstance(limits, dict) and isinstance(limits.get("solver_seconds"), float):
        limits["solver_seconds"] = min(limits["solver_seconds"], solver_seconds)
    return documents
