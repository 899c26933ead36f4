"""Transformers class: any model of transformers by its config.json, without weights.

The class that `architectures` names, or the caller, is built from the configuration alone. No code
of a repository is run: what `auto_map` names is not looked at, and a type that the installed
transformers does not know is refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import unset_fake_temporarily

from executor.errors import LaunchError
from planner.schema.document import read_fields

_DTYPE = torch.bfloat16
_SAMPLES = 2
_SEQUENCE_LIMIT = 4096
_SECOND_OF_SOUND = 16_000
_IMAGE_SIDE = 224
_MEL_BINS, _FRAMES = 80, 3000
_HEADS = ("CausalLM", "Seq2SeqLM", "MaskedLM", "ImageClassification", "CTC")


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformersModel:
    """What builds a model, the inputs of one forward, and what was assumed of both."""

    build_model: Callable[[], nn.Module]
    example_inputs: Mapping[str, torch.Tensor]
    assumptions: tuple[str, ...]


def transformers_model(
    path: Path, *, class_name: str | None = None, sequence_length: int | None = None
) -> TransformersModel:
    """Return the model that a config.json describes, of `class_name` or the class that it names.

    Raises:
        LaunchError: if transformers is not installed, or has no such type or class.
        DocumentError: if the file is no mapping.
    """
    try:
        import transformers  # noqa: PLC0415 - of the user's environment, and 5 s to import
    except ImportError:
        raise _bad(
            "--transformers",
            str(path),
            "transformers is not installed",
            "run: pip install transformers",
        ) from None
    fields = read_fields(path / "config.json" if path.is_dir() else path)
    config, said = _config(transformers, fields)
    model_class = _class(transformers, fields, config, class_name)
    tokens = sequence_length or _longest(config)
    inputs = _inputs(model_class, config, tokens)
    version = transformers.__version__
    traced = f"{model_class.__name__} of transformers {version} was traced with {', '.join(inputs)}"
    return TransformersModel(
        build_model=lambda: _built(model_class, config),
        example_inputs=inputs,
        assumptions=(traced, *said),
    )


def _config(transformers: Any, fields: Mapping[str, Any]) -> tuple[Any, tuple[str, ...]]:
    """Return the configuration, and what of the file it leaves out.

    Raises:
        LaunchError: if the type is unknown or its configuration refuses the fields.
    """
    model_type = fields.get("model_type")
    known = transformers.CONFIG_MAPPING
    if not isinstance(model_type, str) or model_type not in known:
        raise _bad(
            "model_type",
            model_type,
            f"transformers {transformers.__version__} has no such type, and code that auto_map "
            "names is never run",
            "install a transformers that has it, or trace a function of your own: FILE.py:FUNCTION",
        )
    left_out = {"architectures", "auto_map", "quantization_config", "transformers_version"}
    given = {name: value for name, value in fields.items() if name not in left_out}
    try:
        config = known[model_type].from_dict(given)
    except Exception as error:  # noqa: BLE001 - whatever a configuration class raises is reported
        text = " ".join(str(error).split())[:300]
        raise _bad(
            "config.json", model_type, f"its configuration class refuses it: {text}", "correct it"
        ) from None
    if getattr(config, "pad_token_id", None) is None:
        config.pad_token_id = 0  # classifiers of sequences look for the last token before padding
    quantized = "quantization_config" in fields
    said = ("quantization_config is left out: parameters count as in 16 bits",) if quantized else ()
    return config, said


def _class(transformers: Any, fields: Mapping[str, Any], config: Any, asked: str | None) -> Any:
    """Return the class that is asked for, else that `architectures` names, else one with a head.

    Raises:
        LaunchError: if transformers has no such model.
    """
    listed = fields.get("architectures")
    named = asked or (listed[0] if isinstance(listed, list) and listed else None)
    if named is None:
        for head in _HEADS:
            mapping = getattr(transformers, f"AutoModelFor{head}")._model_mapping  # noqa: SLF001
            if type(config) in mapping:
                return mapping[type(config)]
        mapping = transformers.AutoModel._model_mapping  # noqa: SLF001
        if type(config) in mapping:
            return mapping[type(config)]
    found = getattr(transformers, str(named), None)
    if not (inspect.isclass(found) and issubclass(found, transformers.PreTrainedModel)):
        raise _bad(
            "--class" if asked else "architectures",
            named,
            f"transformers {transformers.__version__} has no such model",
            "name one of its classes with --class, such as AutoModel's for this type",
        )
    return found


def _longest(config: Any) -> int:
    """Return the tokens of a sequence that is traced: as many as positions, up to 4,096."""
    positions = getattr(config.get_text_config(), "max_position_embeddings", None)
    return min(positions or _SEQUENCE_LIMIT, _SEQUENCE_LIMIT)


def _inputs(model_class: Any, config: Any, tokens: int) -> dict[str, torch.Tensor]:
    """Return what one forward takes: tokens, pictures or sound, by the class's main input.

    Raises:
        LaunchError: if the class takes something else.
    """
    text = {"input_ids": torch.zeros(_SAMPLES, tokens, dtype=torch.long)}
    both = {"decoder_input_ids": text["input_ids"]} if config.is_encoder_decoder else {}
    takes = inspect.signature(model_class.forward).parameters
    main = model_class.main_input_name
    if main == "input_ids":
        pairs = "pixel_values" in takes and not hasattr(
            model_class, "prepare_inputs_for_generation"
        )
        pictures = {"pixel_values": _pictures(config)} if pairs else {}
        return {**text, **both, **pictures}
    if main == "pixel_values":
        return {**both, "pixel_values": _pictures(config)}
    if main == "input_values":
        return {**both, "input_values": torch.zeros(_SAMPLES, _SECOND_OF_SOUND, dtype=_DTYPE)}
    if main == "input_features":
        bins = getattr(config, "num_mel_bins", _MEL_BINS)
        frames = 2 * getattr(config, "max_source_positions", _FRAMES // 2)
        return {**both, "input_features": torch.zeros(_SAMPLES, bins, frames, dtype=_DTYPE)}
    raise _bad(
        "--class",
        model_class.__name__,
        f"takes {main}, of which no example is known",
        "trace a function of your own: FILE.py:FUNCTION",
    )


def _pictures(config: Any) -> torch.Tensor:
    """Return as many pictures as samples, of the size that the configuration says."""
    own = getattr(config, "vision_config", None) or config
    side = getattr(own, "image_size", None) or _IMAGE_SIDE
    height, width = side if isinstance(side, list | tuple) else (side, side)
    channels = getattr(own, "num_channels", 3)
    return torch.zeros(_SAMPLES, channels, height, width, dtype=_DTYPE)


def _built(model_class: Any, config: Any) -> nn.Module:
    """Return the model in 16 bits, its experts as grouped products where it has any.

    Classes look at values while they are built (how likely each block is dropped), which real
    tensors have and fake ones have not: weights alone are without storage until it stands.
    """
    routes = model_class._can_set_experts_implementation()  # noqa: SLF001 - as from_config asks it
    experts = {"experts_implementation": "grouped_mm"} if routes else {}
    with unset_fake_temporarily(), torch.device("meta"):
        model: Any = model_class._from_config(  # noqa: SLF001 - what from_config of Auto calls
            config, dtype=_DTYPE, **experts
        )
    model.to_empty(device="cpu")
    model.tie_weights()
    return model  # type: ignore[no-any-return]


def _bad(field: str, value: object, problem: str, remedy: str) -> LaunchError:
    return LaunchError(problem, field=field, value=value, remedy=remedy)
