"""Hugging Face config.json -> model graph, one reader per `model_type`.

A config.json may leave out what equals the default of its configuration class (transformers 5.23),
and readers fill that in. Width, depth, heads, feed-forward and vocabulary must be stated: the
defaults there describe some 7B model, which nobody who forgot a key means. Keys that change no
shape are passed over. No code of the model's repository is ever run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from planner.errors import UnsupportedModelError
from planner.importers import hf_alternating, hf_dense, hf_encoder, hf_mixture, hf_vision
from planner.importers.fields import Fields
from planner.schema.document import document_error
from planner.schema.model import ModelGraph

_LENGTH_LIMIT = 64  # nothing longer is near a model type


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """How a model type is read; `aliases` are the other spellings that its class accepts."""

    read: Callable[[Fields, str], ModelGraph]
    aliases: Mapping[str, str] = field(default_factory=dict)


_READERS: Mapping[str, _Reader] = {
    "deepseek_v2": _Reader(read=hf_mixture.deepseek_v2, aliases=hf_mixture.DEEPSEEK_ALIASES),
    "deepseek_v3": _Reader(read=hf_mixture.deepseek_v3, aliases=hf_mixture.DEEPSEEK_ALIASES),
    "gemma": _Reader(read=hf_dense.gemma),
    "gemma2": _Reader(read=hf_alternating.gemma2),
    "gemma3": _Reader(read=hf_vision.gemma3),
    "gemma3_text": _Reader(read=hf_alternating.gemma3_text),
    "gpt2": _Reader(read=hf_dense.gpt2, aliases=hf_dense.GPT2_ALIASES),
    "gpt_oss": _Reader(read=hf_alternating.gpt_oss, aliases=hf_alternating.GPT_OSS_ALIASES),
    "granite": _Reader(read=hf_dense.llama),
    "llama": _Reader(read=hf_dense.llama),
    "llava": _Reader(read=hf_vision.llava),
    "mistral": _Reader(read=hf_dense.mistral),
    "mixtral": _Reader(read=hf_mixture.mixtral, aliases=hf_mixture.MIXTRAL_ALIASES),
    "mt5": _Reader(read=hf_encoder.mt5, aliases=hf_encoder.T5_ALIASES),
    "olmo2": _Reader(read=hf_alternating.olmo2),
    "phi3": _Reader(read=hf_dense.phi3),
    "qwen2": _Reader(read=hf_dense.qwen2),
    "qwen2_moe": _Reader(read=hf_mixture.qwen2_moe),
    "qwen2_vl": _Reader(read=hf_vision.qwen2_vl),
    "qwen3": _Reader(read=hf_dense.qwen3),
    "qwen3_moe": _Reader(read=hf_mixture.qwen3_moe, aliases=hf_mixture.QWEN3_MOE_ALIASES),
    "t5": _Reader(read=hf_encoder.t5, aliases=hf_encoder.T5_ALIASES),
    "whisper": _Reader(read=hf_encoder.whisper, aliases=hf_encoder.WHISPER_ALIASES),
}


def model_types() -> tuple[str, ...]:
    """Return the values of `model_type` that can be read, sorted."""
    return tuple(sorted(_READERS))


def graph_from_huggingface(config: Mapping[str, Any], *, name: str) -> ModelGraph:
    """Return the model graph that a config.json describes.

    Raises:
        UnsupportedModelError: if `model_type` is unknown.
        DocumentError: if a field is missing or has a bad value.
    """
    model_type = config.get("model_type")
    reader = _READERS.get(model_type) if isinstance(model_type, str) else None
    if reader is None:
        near = get_close_matches(str(model_type)[:_LENGTH_LIMIT], _READERS, n=3)
        hint = f"did you mean {', '.join(near)}? " if near else ""
        raise UnsupportedModelError(
            "is not a model type that can be read",
            field="model_type",
            value=model_type,
            remedy=f"{hint}known types are {', '.join(model_types())}; or describe the model "
            "as a model graph",
        )
    try:
        return reader.read(Fields(config, aliases=reader.aliases), name)
    except ValidationError as error:  # sizes, each fine alone, whose product is not
        raise document_error(error, source=name) from None
