"""DeepSpeed inside: what a trainer's `deepspeed` says, as a mapping or as a file beside its own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner.errors import DocumentError
from planner.importers.training.config import Setting, TrainingConfig
from planner.importers.training.deepspeed import read_deepspeed
from planner.importers.training.numerics import precision_of
from planner.importers.training.scalar_text import with_numbers
from planner.importers.training.sharding import checkpointing_of
from planner.importers.training.words import Words
from planner.schema.document import read_fields
from planner.schema.strategy import ActivationCheckpointing, ContextParallelKind

_WORD = "deepspeed"
_MICRO, _STEPS = "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
_STAGE = re.compile(r"(?:^|[_-])z(?:ero)?_?([0-3])(?:[_.-]|$)")
_ABOVE = 6


def deepspeed_fields(words: Words, setting: Setting) -> Mapping[str, Any] | None:
    """Return DeepSpeed's fields, None where it is not used.

    Raises:
        DocumentError: if they stand in a file that is not here.
    """
    given = words.get(_WORD)
    if given in (None, False) or isinstance(given, Mapping):
        return given or None
    file = _found(str(given), setting.folder)
    if file is not None:
        inside: dict[str, Any] = with_numbers(read_fields(file))
        return inside
    stage = _STAGE.search(Path(str(given)).name.lower())
    if stage is None or "deepspeed_by_name" not in words.fixed:
        raise DocumentError(
            "has a file of its own",
            field=words.place(_WORD),
            value=given,
            remedy="give that DeepSpeed configuration instead",
        )
    return _by_name(words, str(given), int(stage[1]))


def _found(name: str, folder: Path | None) -> Path | None:
    """Return the file that a relative path names from the configuration's folder or one above."""
    if folder is None or not name.endswith(".json"):
        return None
    home = folder.resolve()
    places = (home, *home.parents[:_ABOVE])
    return next((place / name for place in places if (place / name).is_file()), None)


def _by_name(words: Words, name: str, stage: int) -> dict[str, Any]:
    """Return what a framework's own file of such a name says."""
    zero: dict[str, Any] = {"stage": stage}
    file = Path(name).name.lower()
    moved = "offload" in file and stage > 0
    if moved and stage == 3:
        zero["offload_param"] = {"device": "cpu"}
    if moved and "offload_params" not in file:
        zero["offload_optimizer"] = {"device": "cpu"}
    also = ", offloaded" if moved else ""
    words.said.append(
        f"{words.place(_WORD)} {name} is not here: ZeRO stage {stage}{also}, by its name"
    )
    return {"zero_optimization": zero}


def read_inside(fields: Mapping[str, Any], words: Words, setting: Setting) -> TrainingConfig:
    """Return what DeepSpeed's fields say, their `auto` filled in as the trainer does.

    Raises:
        DocumentError: naming the key, its value and the remedy.
    """
    own = {name: value for name, value in fields.items() if value != "auto"}
    _require_agreement(own, words)
    own.setdefault(_MICRO, words.size("micro_batch", 1))
    own.setdefault(_STEPS, words.size("accumulation", 1))
    _fill_precision(own, words)
    if words.size("tensor", 1, minimum=0) > 1:
        own["tensor_parallel"] = {"autotp_size": words.size("tensor")}
    ring, heads = (words.size(word, 1, minimum=0) or 1 for word in ("context", "heads"))
    if max(ring, heads) > 1:
        own["sequence_parallel_size"] = max(ring, heads)
    config = read_deepspeed(own, setting)
    kept, moved = checkpointing_of(words)
    changed: dict[str, Any] = {}
    if kept is not ActivationCheckpointing.NONE:
        offload = (*(config.strategy.offload or ()), *moved)
        changed = {"activation_checkpointing": kept, "offload": tuple(dict.fromkeys(offload))}
    if ring > 1:
        changed["context_parallel_kind"] = ContextParallelKind.RING
    unsaid = "whether the program checkpoints"
    stated = bool({"checkpointing", "older_checkpointing"} & {*words.values, *words.assumed})
    said = tuple(one for one in config.assumptions if not (stated and unsaid in one))
    strategy = config.strategy.model_copy(update=changed)
    job = dict(config.job)
    if "gradient_clipping" not in own:
        del job["gradient_clipping"]
    if job["precision"] == "fp32" and words.flag("tensor_float_32"):
        job["tensor_float_32"] = True
    return replace(config, strategy=strategy, assumptions=said, job=job)


def _require_agreement(own: Mapping[str, Any], words: Words) -> None:
    """Raise where both files say a batch, and not the same, which the trainer refuses as well.

    Raises:
        DocumentError: naming the trainer's key.
    """
    for name, word in ((_MICRO, "micro_batch"), (_STEPS, "accumulation")):
        if word in words and own.get(name) not in (None, words.size(word)):
            raise DocumentError(
                f"contradicts {name} of its DeepSpeed configuration, {own[name]}",
                field=words.place(word),
                value=words.size(word),
                remedy='write "auto" there, or the same number in both',
            )


def _fill_precision(own: dict[str, Any], words: Words) -> None:
    """Put the trainer's number format where DeepSpeed's file leaves it open."""
    sections = ("bf16", "bfloat16", "fp16")
    stated = [
        own[name]
        for name in sections
        if isinstance(own.get(name), Mapping) and own[name].get("enabled") is True
    ]
    if stated:
        return
    for name in sections:
        own.pop(name, None)
    found = precision_of(words)["precision"]
    if found in ("bf16", "fp16"):
        own[str(found)] = {"enabled": True}
