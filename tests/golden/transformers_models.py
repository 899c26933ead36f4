"""Models of transformers, built without weights: the oracle for shapes."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForSeq2SeqLM,
    AutoModelForSpeechSeq2Seq,
    PretrainedConfig,
)
from transformers.models.mistral4.modeling_mistral4 import Mistral4ForCausalLM

_CLASSES = {
    "aya_vision": AutoModelForImageTextToText,
    "cohere2_vision": AutoModelForImageTextToText,
    "gemma3": AutoModelForImageTextToText,
    "gemma4": AutoModelForImageTextToText,
    "glm4v": AutoModelForImageTextToText,
    "glm4v_moe": AutoModelForImageTextToText,
    "idefics3": AutoModelForImageTextToText,
    "internvl": AutoModelForImageTextToText,
    "llama4": AutoModelForImageTextToText,
    "llava": AutoModelForImageTextToText,
    "llava_next": AutoModelForImageTextToText,
    "llava_onevision": AutoModelForImageTextToText,
    "mistral3": AutoModelForImageTextToText,
    "mllama": AutoModelForImageTextToText,
    "mt5": AutoModelForSeq2SeqLM,
    "paligemma": AutoModelForImageTextToText,
    "qwen2_5_vl": AutoModelForImageTextToText,
    "qwen2_vl": AutoModelForImageTextToText,
    "qwen3_5": AutoModelForImageTextToText,
    "qwen3_5_moe": AutoModelForImageTextToText,
    "qwen3_vl": AutoModelForImageTextToText,
    "qwen3_vl_moe": AutoModelForImageTextToText,
    "smolvlm": AutoModelForImageTextToText,
    "t5": AutoModelForSeq2SeqLM,
    "whisper": AutoModelForSpeechSeq2Seq,
}
# Of these, transformers 5.23 has the class and no entry for it in its automatic ones.
_WITHOUT_AN_ENTRY = {"mistral4": Mistral4ForCausalLM}


def reference_config(fields: dict[str, Any]) -> PretrainedConfig:
    """Return transformers' own reading of a config.json's fields."""
    given = {key: value for key, value in fields.items() if key != "architectures"}
    return AutoConfig.for_model(given.pop("model_type"), **given)


def reference_model(
    fields: dict[str, Any], *, device: str = "meta", **options: Any
) -> torch.nn.Module:
    """Return transformers' own model, on the meta device unless told.

    It is of the class that `architectures` names first, where it does.
    """
    model_type = fields["model_type"]
    named = fields.get("architectures")
    own = getattr(transformers, named[0]) if named else _WITHOUT_AN_ENTRY.get(model_type)
    build = own._from_config if own else _CLASSES.get(model_type, AutoModelForCausalLM).from_config
    config = reference_config(fields)
    text = config.get_text_config()
    if own is not None and isinstance(text, own.config_class):
        config = text  # as the automatic class takes a half of the whole
    with torch.device(device):
        return build(config, **options)


def reference_parameter_count(fields: dict[str, Any]) -> int:
    """Return how many parameters it has, tied ones once."""
    return sum(parameter.numel() for parameter in reference_model(fields).parameters())
