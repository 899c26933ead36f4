"""Known types of Hugging Face that cannot be read, and what no model graph has a part for."""

from __future__ import annotations

from collections.abc import Mapping

_DISENTANGLED = "scores of attention by relative position, made of products of their own"
_RECURRENCE = "a recurrence that no mixer stands for"
_SHARED = "blocks that share their weights"
_CONVOLUTIONS = "a convolutional tower"

MISSING: Mapping[str, str] = {
    "albert": _SHARED,
    "blip-2": "a tower of learned queries",
    "deberta": _DISENTANGLED,
    "deberta-v2": _DISENTANGLED,
    "florence2": _CONVOLUTIONS,
    "gemma3n": "rows of residual that predict one another, and a convolutional tower",
    "gemma3n_text": "rows of residual that predict one another",
    "instructblip": "a tower of learned queries",
    "longcat_flash": "two attentions a layer, and experts that compute nothing",
    "minimax": "lightning attention",
    "qwen2_5_omni": "a talker beside its thinker, whose thinker_config can be given by itself",
    "qwen3_omni_moe": "a talker beside its thinker",
    "recurrent_gemma": _RECURRENCE,
    "rwkv": _RECURRENCE,
    "xlstm": _RECURRENCE,
    "zamba": _SHARED,
    "zamba2": _SHARED,
}
