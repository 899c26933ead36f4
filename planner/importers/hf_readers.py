"""Readers of Hugging Face configurations by `model_type`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from planner.importers import (
    hf_alternating,
    hf_dense,
    hf_encoder,
    hf_mixture,
    hf_mllama,
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
    "deepseek_v2": Reader(read=hf_mixture.deepseek_v2, aliases=hf_mixture.DEEPSEEK_ALIASES),
    "deepseek_v3": Reader(read=hf_mixture.deepseek_v3, aliases=hf_mixture.DEEPSEEK_ALIASES),
    "gemma": Reader(read=hf_dense.gemma),
    "gemma2": Reader(read=hf_alternating.gemma2),
    "gemma3": Reader(read=hf_vision.gemma3),
    "gemma3_text": Reader(read=hf_alternating.gemma3_text),
    "gpt2": Reader(read=hf_dense.gpt2, aliases=hf_dense.GPT2_ALIASES),
    "gpt_oss": Reader(read=hf_alternating.gpt_oss, aliases=hf_alternating.GPT_OSS_ALIASES),
    "granite": Reader(read=hf_dense.llama),
    "llama": Reader(read=hf_dense.llama),
    "llava": Reader(read=hf_vision.llava),
    "mistral": Reader(read=hf_dense.mistral),
    "mixtral": Reader(read=hf_mixture.mixtral, aliases=hf_mixture.MIXTRAL_ALIASES),
    "mllama": Reader(read=hf_mllama.mllama),
    "mt5": Reader(read=hf_encoder.mt5, aliases=hf_encoder.T5_ALIASES),
    "olmo2": Reader(read=hf_alternating.olmo2),
    "phi3": Reader(read=hf_dense.phi3),
    "qwen2": Reader(read=hf_dense.qwen2),
    "qwen2_moe": Reader(read=hf_mixture.qwen2_moe),
    "qwen2_5_vl": Reader(read=hf_qwen_vl.qwen2_5_vl),
    "qwen2_vl": Reader(read=hf_qwen_vl.qwen2_vl),
    "qwen3": Reader(read=hf_dense.qwen3),
    "qwen3_moe": Reader(read=hf_mixture.qwen3_moe, aliases=hf_mixture.QWEN3_MOE_ALIASES),
    "t5": Reader(read=hf_encoder.t5, aliases=hf_encoder.T5_ALIASES),
    "whisper": Reader(read=hf_encoder.whisper, aliases=hf_encoder.WHISPER_ALIASES),
}
