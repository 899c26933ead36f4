"""Released models: parameters exactly those of transformers' classes, FLOPs those torch counts.

All on torch's meta device: nothing is computed, so that whole models can be counted.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from planner.importers.models import model_from_fields
from planner.schema.model import GatedDeltaMixer, MixtureFeedForward, ModelGraph, StateSpaceMixer
from planner.workload.layer import LayerWorkload
from planner.workload.model import model_workload
from tests.golden.further_shapes import FURTHER_SHAPES
from tests.golden.public_shapes import SHAPES as FIRST_SHAPES
from tests.golden.transformers_models import reference_model

SHAPES = {**FIRST_SHAPES, **FURTHER_SHAPES}
FIRST_OF_KIND = {
    next(name for name, each in SHAPES.items() if each["model_type"] == kind)
    for kind in {each["model_type"] for each in SHAPES.values()}
}
TOKENS = 512
SCANNED_TOKENS = 32  # of a sequence that the reference goes through token by token
SCANNED = {"mamba", "falcon_mamba", "jamba"}
DEPTH = 7  # of every kind of layer that any of them has, one is among the first seven
RECURRENT = {
    "qwen3_next",
    "qwen3_5_text",
    "nemotron_h",
    "granitemoehybrid",
    "falcon_h1",
    "kimi_linear",
    "bamba",
    "jamba",
    "lfm2",
    "lfm2_moe",
}
PUBLISHED = {
    "llama-2-13b": 13_015_864_320,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.3-70b": 70_553_706_496,
    "mistral-nemo-12b": 12_247_782_400,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-0.5b": 494_032_768,
    "deepseek-v2-lite": 15_706_484_224,
    "gpt-oss-20b": 20_914_757_184,
    "gemma-2-2b": 2_614_341_888,
    "gemma-3-1b": 999_885_952,
    "glm-4-9b-0414": 9_400_279_040,
    "olmo-2-7b": 7_298_617_344,
    "phi-3-mini": 3_821_079_552,
    "smollm3-3b": 3_075_098_624,
    "mamba-2.8b": 2_768_345_600,
    "falcon-mamba-7b": 7_272_665_088,
    "mamba-codestral-7b": 7_285_403_648,
    "jamba-v0.1": 51_570_323_328,
    "lfm2-1.2b": 1_170_340_608,
    "starcoder-15b": 15_517_456_384,
    "gpt-j-6b": 6_050_882_784,
    "phi-3.5-moe": 41_873_153_344,
    "vaultgemma-1b": 1_038_741_120,
}
"""What the checkpoints' own indices state, in bf16 bytes over two."""


def with_a_class(fields: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration whose type transformers knows: kimi_k2 is a deepseek_v3."""
    if fields["model_type"] == "kimi_k2":
        return {**fields, "model_type": "deepseek_v3"}
    return fields


def parameter_count(fields: dict[str, Any]) -> int:
    """Return what we count."""
    return model_workload(model_from_fields(fields, name="it")).parameter_count


@pytest.mark.parametrize("name", SHAPES)
def test_parameters_are_exactly_those_of_the_reference_class(name):
    reference = reference_model(with_a_class(SHAPES[name]))
    counted = sum(parameter.numel() for parameter in reference.parameters())
    assert parameter_count(SHAPES[name]) == counted


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_those_of_the_published_checkpoint(name):
    assert parameter_count(SHAPES[name]) == PUBLISHED[name]


def shallow(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the decoder of a configuration cut to its first layers."""
    fields = with_a_class(fields.get("text_config", fields))
    depth = next((name for name in ("n_layer", "n_layers", "num_layers") if name in fields), None)
    depth = depth or "num_hidden_layers"
    cut = {**fields, depth: DEPTH}
    if "attention_types" in fields:
        cut["attention_types"] = [[["global", "local"], DEPTH // 2], [["global"], 1]]
    for name in ("layer_types", "hybrid_override_pattern"):
        if name in fields:
            cut[name] = fields[name][:DEPTH]
    if "linear_attn_config" in fields:
        cut["linear_attn_config"] = {
            name: [layer for layer in value if layer <= DEPTH] if isinstance(value, list) else value
            for name, value in fields["linear_attn_config"].items()
        }
    if "num_kv_shared_layers" in fields:  # all others are needed, to have one of each kind
        cut["num_kv_shared_layers"] = 2
    return cut


def token_count(fields: dict[str, Any]) -> int:
    """Return the length of the sequence that is counted."""
    return SCANNED_TOKENS if fields["model_type"] in SCANNED else TOKENS


def counted_flop(fields: dict[str, Any]) -> float:
    """Return the forward FLOPs that torch counts for one sequence."""
    experts = (
        {} if fields["model_type"] == "llama4_text" else {"experts_implementation": "batched_mm"}
    )
    model = reference_model(fields, attn_implementation="eager", **experts).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad(), torch.device("meta"):
        tokens = torch.zeros(1, token_count(fields), dtype=torch.long)
        mask = torch.ones_like(tokens)  # without one the tokens themselves are looked at
        if fields["model_type"] in RECURRENT:
            mask = {"full_attention": None, "linear_attention": None, "conv": None}
        if fields["model_type"] == "mamba2":
            mask = None
        model(tokens, attention_mask=mask, use_cache=False)
    return float(counter.get_total_flops())


def unmasked_flop(layer: LayerWorkload, tokens: int) -> float:
    """Return a layer's forward FLOPs of one sequence when every query sees every key."""
    flop = tokens * sum(gemm.flop_per_token() for gemm in layer.gemms)
    if layer.attention is None:
        return flop
    core = layer.attention
    width = core.head_count * (core.key_head_size + core.value_head_size)
    entries = tokens // core.entry_tokens if core.entry_tokens else 0
    return flop + 2.0 * tokens * (width * (tokens + entries) + core.index_width * entries)


def counted_otherwise(graph: ModelGraph, tokens: int) -> float:
    """Return what the reference computes more than fused kernels, or torch does not count.

    In plain torch a state-space layer has keys and queries per head, not per group, and combines
    all chunks with all. torch counts no triangular solution, of which a gated delta net has two,
    nor the scores of one whose channels decay each alone, which are summed without a product.
    Llama-4's experts compute every token, most of them times nothing.
    """
    total = 0.0
    for run in graph.runs:
        mixer, feed_forward = run.block.mixer, run.block.feed_forward
        if isinstance(mixer, StateSpaceMixer):
            chunk, chunks = mixer.chunk_tokens, tokens // mixer.chunk_tokens + 1
            more = mixer.head_count - mixer.group_count
            total += run.block_count * 2.0 * tokens * chunk * mixer.state_size * more
            total += run.block_count * 2.0 * chunks**2 * mixer.inner_width * mixer.state_size
        if isinstance(mixer, GatedDeltaMixer):
            keys = mixer.value_head_count * mixer.key_head_size
            uncounted = keys + mixer.inner_width if mixer.gate_rank is None else 2 * keys
            total -= run.block_count * 2.0 * tokens * mixer.chunk_tokens * uncounted
        if graph.architecture == "llama4_text" and isinstance(feed_forward, MixtureFeedForward):
            idle = feed_forward.expert_count - feed_forward.experts_per_token
            expert = 6.0 * graph.hidden_size * feed_forward.expert_ffn_size
            total += run.block_count * tokens * idle * expert
    return total


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in FIRST_OF_KIND else pytest.mark.full)
        for name in SHAPES
    ],
)
def test_forward_flop_is_within_one_percent_of_what_torch_counts(name):
    fields = shallow(SHAPES[name])
    graph = model_from_fields(fields, name="it")
    tokens = token_count(fields)
    workload = model_workload(graph)
    layers = [*workload.runs, (workload.head.layer, 1)]
    own = sum(count * unmasked_flop(layer, tokens) for layer, count in layers)
    inputs = (gemm for source in workload.embedding.sources for gemm in source.gemms)
    own += tokens * sum(gemm.flop_per_token() for gemm in inputs)
    assert own + counted_otherwise(graph, tokens) == pytest.approx(counted_flop(fields), rel=0.01)
