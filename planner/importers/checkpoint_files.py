"""Files that lie beside a config.json, or stand for one elsewhere: told by keys of theirs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_CONFIG = "give the config.json that lies beside it"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFile:
    """A file that has all `keys`: what it is, and what to give in its place."""

    keys: frozenset[str]
    what: str
    remedy: str


def _known(keys: str, what: str, remedy: str = _CONFIG) -> KnownFile:
    return KnownFile(keys=frozenset(keys.split()), what=what, remedy=remedy)


_FILES = (
    _known(
        "dim n_layers n_heads",
        "the params.json of a release by Meta or Mistral",
        "give the config.json of the same model's release for transformers",
    ),
    _known(
        "peft_type",
        "the adapter_config.json of a PEFT adapter",
        "give the model that its base_model_name_or_path names, and the adapter's rank and modules "
        "in the job's `adapters`",
    ),
    _known(
        "_class_name",
        "a configuration of diffusers, of a class that is not read",
        "give that of a DiT, Flux, SD3, Wan or HunyuanVideo transformer, or trace the model with "
        "`meshwright trace`",
    ),
    _known("weight_map", "the index of a checkpoint's weights"),
    _known("tokenizer_class", "a tokenizer_config.json"),
    _known("added_tokens pre_tokenizer", "a tokenizer.json"),
    _known("image_processor_type", "a preprocessor_config.json"),
    _known("feature_extractor_type", "a preprocessor_config.json"),
    _known("_from_model_config", "a generation_config.json"),
    _known(
        "zero_optimization",
        "a configuration of DeepSpeed",
        "give it as the strategy, and a config.json as the model",
    ),
)


def known_file(fields: Mapping[str, Any]) -> KnownFile | None:
    """Return what a document without `model_type` seems to be."""
    return next((file for file in _FILES if file.keys <= fields.keys()), None)
