"""Known types of Hugging Face that cannot be read, and what no model graph has a part for."""

from __future__ import annotations

from collections.abc import Mapping

_DISENTANGLED = "scores of attention by relative position, made of products of their own"
_RECURRENCE = "a recurrence that no mixer stands for"
_SHARED = "blocks that share their weights"
_CONVOLUTIONS = "a convolutional tower"
_CODEBOOKS = "several vocabularies of sound, each with a head"
_TWO_VOCABULARIES = "codes of pictures, made and read by a convolutional network"
_CONFORMER = "blocks with two feed-forwards around attention and a convolution"
_BYTES = "patches of bytes, whose length the model chooses"
_DRAFTS = "keys and values of the model that it drafts for"
_TWO_MODELS = "two models of any types, one reading the other"

MISSING: Mapping[str, str] = {
    "albert": _SHARED,
    "blt": _BYTES,
    "canary": _CONFORMER,
    "chameleon": _TWO_VOCABULARIES,
    "cohere_asr": _CONFORMER,
    "convbert": "attention and a convolution side by side in each block",
    "deberta": _DISENTANGLED,
    "deberta-v2": _DISENTANGLED,
    "encoder-decoder": _TWO_MODELS,
    "ernie4_5_vl_moe": "experts of two widths, of which one kind is for pictures",
    "fast_vlm": _CONVOLUTIONS,
    "florence2": _CONVOLUTIONS,
    "fnet": "a Fourier transform in place of attention",
    "funnel": _DISENTANGLED,
    "gemma4_assistant": _DRAFTS,
    "gemma4_unified_assistant": _DRAFTS,
    "granite_speech": _CONFORMER,
    "granite_speech_plus": _CONFORMER,
    "hrm_text": _SHARED,
    "janus": _TWO_VOCABULARIES,
    "jetmoe": "experts that make the queries of attention",
    "kyutai_speech_to_text": _CODEBOOKS,
    "longcat_flash": "two attentions a layer, and experts that compute nothing",
    "mobilebert": "several feed-forwards in a narrow block",
    "musicgen": _CODEBOOKS,
    "musicgen_melody": _CODEBOOKS,
    "parakeet_ctc": _CONFORMER,
    "perception_lm": _CONVOLUTIONS,
    "prophetnet": "several streams of attention that predict several tokens",
    "qwen2_5_omni": "a talker beside its thinker, whose thinker_config can be given by itself",
    "qwen3_omni_moe": "a talker beside its thinker",
    "recurrent_gemma": _RECURRENCE,
    "reformer": "attention among tokens of one hash",
    "rwkv": _RECURRENCE,
    "seamless_m4t": _CONFORMER,
    "seamless_m4t_v2": _CONFORMER,
    "speech-encoder-decoder": _TWO_MODELS,
    "squeezebert": "products over groups of channels",
    "video_llava": "two towers that share their way to the decoder",
    "xlnet": _DISENTANGLED,
    "xlstm": _RECURRENCE,
    "zamba": _SHARED,
    "zamba2": _SHARED,
    "zaya": "keys and queries that pass convolutions",
}
