"""Readers of Hugging Face configurations by `model_type`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from planner.importers import (
    hf_alternating,
    hf_deepseek_v4,
    hf_dense,
    hf_encoder,
    hf_ernie,
    hf_gemma4,
    hf_glm,
    hf_hybrid,
    hf_kimi,
    hf_layer_norm,
    hf_llama4,
    hf_llama_kin,
    hf_mistral3,
    hf_mixture,
    hf_mixture_kin,
    hf_mllama,
    hf_nemotron,
    hf_parallel,
    hf_positions,
    hf_qwen_linear,
    hf_qwen_vl,
    hf_vision,
)
from planner.importers.fields import Fields
from planner.schema.model import ModelGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """How a model type is read; `aliases` are the other spellings that its class accepts."""

    read: Callable[[Fields, str], ModelGraph]
    aliases: Mapping[str, str] = field(default_factory=dict)


READERS: Mapping[str, Reader] = {
    "arcee": Reader(read=hf_llama_kin.arcee),
    "bloom": Reader(read=hf_layer_norm.bloom, aliases=hf_layer_norm.BLOOM_ALIASES),
    "cohere": Reader(read=hf_parallel.cohere),
    "cohere2": Reader(read=hf_parallel.cohere2),
    "cwm": Reader(read=hf_llama_kin.cwm),
    "deepseek_v2": Reader(read=hf_mixture.deepseek_v2, aliases=hf_mixture.DEEPSEEK_V2_ALIASES),
    "deepseek_v3": Reader(read=hf_mixture.deepseek_v3, aliases=hf_mixture.DEEPSEEK_V3_ALIASES),
    "deepseek_v4": Reader(
        read=hf_deepseek_v4.deepseek_v4, aliases=hf_deepseek_v4.DEEPSEEK_V4_ALIASES
    ),
    "dots1": Reader(read=hf_mixture_kin.dots1, aliases=hf_mixture_kin.ROUTED_ALIASES),
    "ernie4_5": Reader(read=hf_ernie.ernie4_5),
    "ernie4_5_moe": Reader(read=hf_ernie.ernie4_5_moe, aliases=hf_ernie.ERNIE4_5_MOE_ALIASES),
    "exaone4": Reader(read=hf_llama_kin.exaone4),
    "falcon": Reader(read=hf_parallel.falcon, aliases=hf_parallel.FALCON_ALIASES),
    "falcon_h1": Reader(read=hf_hybrid.falcon_h1),
    "flex_olmo": Reader(read=hf_mixture_kin.flex_olmo, aliases=hf_mixture_kin.FLEX_OLMO_ALIASES),
    "gemma": Reader(read=hf_dense.gemma),
    "gemma2": Reader(read=hf_alternating.gemma2),
    "gemma3": Reader(read=hf_vision.gemma3),
    "gemma3_text": Reader(read=hf_alternating.gemma3_text),
    "gemma4": Reader(read=hf_gemma4.gemma4),
    "gemma4_text": Reader(read=hf_gemma4.gemma4_text),
    "glm": Reader(read=hf_llama_kin.glm),
    "glm4": Reader(read=hf_glm.glm4),
    "glm4_moe": Reader(read=hf_glm.glm4_moe, aliases=hf_glm.GLM4_MOE_ALIASES),
    "glm4_moe_lite": Reader(
        read=hf_mixture_kin.glm4_moe_lite, aliases=hf_mixture_kin.GLM4_MOE_LITE_ALIASES
    ),
    "gpt2": Reader(read=hf_layer_norm.gpt2, aliases=hf_layer_norm.GPT2_ALIASES),
    "gpt_neox": Reader(read=hf_parallel.gpt_neox),
    "gpt_oss": Reader(read=hf_alternating.gpt_oss, aliases=hf_alternating.GPT_OSS_ALIASES),
    "granite": Reader(read=hf_dense.llama),
    "granitemoe": Reader(read=hf_mixture_kin.granitemoe),
    "granitemoehybrid": Reader(read=hf_hybrid.granitemoehybrid, aliases=hf_hybrid.GRANITE_ALIASES),
    "granitemoeshared": Reader(read=hf_mixture_kin.granitemoeshared),
    "helium": Reader(read=hf_llama_kin.helium),
    "hunyuan_v1_dense": Reader(read=hf_llama_kin.hunyuan_v1_dense),
    "kimi_k2": Reader(read=hf_mixture.kimi_k2, aliases=hf_mixture.DEEPSEEK_V3_ALIASES),
    "kimi_linear": Reader(read=hf_kimi.kimi_linear, aliases=hf_kimi.KIMI_LINEAR_ALIASES),
    "llama": Reader(read=hf_dense.llama),
    "llama4": Reader(read=hf_llama4.llama4),
    "llama4_text": Reader(read=hf_positions.llama4_text),
    "llava": Reader(read=hf_vision.llava),
    "minimax_m2": Reader(read=hf_glm.minimax_m2, aliases=hf_glm.MINIMAX_M2_ALIASES),
    "ministral": Reader(read=hf_llama_kin.ministral),
    "ministral3": Reader(read=hf_dense.ministral3),
    "mistral": Reader(read=hf_dense.mistral),
    "mistral3": Reader(read=hf_mistral3.mistral3),
    "mistral4": Reader(read=hf_mixture_kin.mistral4, aliases=hf_mixture_kin.ROUTED_ALIASES),
    "mixtral": Reader(read=hf_mixture.mixtral, aliases=hf_mixture.MIXTRAL_ALIASES),
    "mllama": Reader(read=hf_mllama.mllama),
    "mt5": Reader(read=hf_encoder.mt5, aliases=hf_encoder.T5_ALIASES),
    "nemotron": Reader(read=hf_llama_kin.nemotron),
    "nemotron_h": Reader(read=hf_nemotron.nemotron_h, aliases=hf_nemotron.NEMOTRON_ALIASES),
    "olmo2": Reader(read=hf_alternating.olmo2),
    "olmo3": Reader(read=hf_alternating.olmo3),
    "olmoe": Reader(read=hf_alternating.olmoe, aliases=hf_alternating.OLMOE_ALIASES),
    "opt": Reader(read=hf_layer_norm.opt),
    "phi": Reader(read=hf_parallel.phi),
    "phi3": Reader(read=hf_dense.phi3),
    "qwen2": Reader(read=hf_dense.qwen2),
    "qwen2_moe": Reader(read=hf_mixture.qwen2_moe),
    "qwen2_5_vl": Reader(read=hf_qwen_vl.qwen2_5_vl),
    "qwen2_vl": Reader(read=hf_qwen_vl.qwen2_vl),
    "qwen3": Reader(read=hf_dense.qwen3),
    "qwen3_moe": Reader(read=hf_mixture.qwen3_moe, aliases=hf_mixture.QWEN3_MOE_ALIASES),
    "qwen3_5": Reader(read=hf_qwen_vl.qwen3_5),
    "qwen3_5_moe": Reader(read=hf_qwen_vl.qwen3_5_moe),
    "qwen3_5_moe_text": Reader(read=hf_qwen_linear.qwen3_5_moe_text),
    "qwen3_5_text": Reader(read=hf_qwen_linear.qwen3_5_text),
    "qwen3_next": Reader(read=hf_qwen_linear.qwen3_next),
    "qwen3_vl": Reader(read=hf_qwen_vl.qwen3_vl),
    "qwen3_vl_moe": Reader(read=hf_qwen_vl.qwen3_vl_moe),
    "seed_oss": Reader(read=hf_dense.seed_oss),
    "smollm3": Reader(read=hf_positions.smollm3),
    "solar_open": Reader(read=hf_mixture_kin.solar_open, aliases=hf_mixture_kin.ROUTED_ALIASES),
    "stablelm": Reader(read=hf_llama_kin.stablelm),
    "starcoder2": Reader(read=hf_layer_norm.starcoder2),
    "t5": Reader(read=hf_encoder.t5, aliases=hf_encoder.T5_ALIASES),
    "whisper": Reader(read=hf_encoder.whisper, aliases=hf_encoder.WHISPER_ALIASES),
}
