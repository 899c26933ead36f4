"""Sharding: which model states a configuration spreads over data-parallel ranks, and moves away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.errors import DocumentError
from planner.importers.training.words import Words
from planner.schema.strategy import ActivationCheckpointing, Offload

STRATEGIES = {
    "FULL_SHARD": 3,
    "SHARD_GRAD_OP": 2,
    "NO_SHARD": 0,
    "HYBRID_SHARD": 3,
    "HYBRID_SHARD_ZERO2": 2,
    "1": 3,
    "2": 2,
    "3": 0,
    "4": 3,
    "5": 2,
}
HYBRIDS = {"HYBRID_SHARD", "HYBRID_SHARD_ZERO2", "4", "5"}
_BESIDE = {"auto_wrap", "offload", "true"}
_CHECKPOINTING = {
    "true": (ActivationCheckpointing.FULL, ()),
    "full": (ActivationCheckpointing.FULL, ()),
    "unsloth": (ActivationCheckpointing.FULL, (Offload.ACTIVATIONS,)),
    "offload": (ActivationCheckpointing.FULL, (Offload.ACTIVATIONS,)),
    "selective": (ActivationCheckpointing.SELECTIVE, ()),
    "minimal": (ActivationCheckpointing.SELECTIVE, ()),
    "false": (ActivationCheckpointing.NONE, ()),
    "none": (ActivationCheckpointing.NONE, ()),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """The ZeRO stage, whether each node has a copy, and what lies on the host."""

    stage: int
    hybrid: bool
    offload: tuple[Offload, ...]


def sharding_of(words: Words) -> Sharding:
    """Return what is sharded.

    Raises:
        DocumentError: if a word is not known, or offload needs another stage.
    """
    options = _fsdp_options(words)
    words.get("fsdp_version")
    if not _is_sharded(words):
        if "fsdp_switch" in words.places and ({"reshard", "sharding"} & set(words.values)):
            words.said.append(f"{words.place('fsdp_switch')} is off: its options are not used")
        stage = words.size("zero_stage", 0, minimum=0)
        if stage == 3 and words.get("reshard") is False:
            stage = 2
        return Sharding(stage=_checked(words, stage), hybrid=False, offload=_moved(words, stage))
    name = options or _strategy_name(words)
    # Version 2 says by a switch what version 1 says by a name.
    switch = isinstance(words.get("reshard"), bool)
    switched = name is None or (switch and STRATEGIES[name] > 0)
    stage = (3 if words.flag("reshard", True) else 2) if switched else STRATEGIES[name or ""]
    return Sharding(
        stage=stage, hybrid=name in HYBRIDS, offload=_moved(words, stage, also=_says_offload(words))
    )


def _is_sharded(words: Words) -> bool:
    if "zero_stage" in words:
        return False
    given = words.get("fsdp_switch")
    if "fsdp_switch" in words.places:
        split = bool(words.get("sharded_with_tensor")) and words.size("tensor", 1, minimum=0) > 1
        return split or (bool(given) and given != "false")
    on = ("fsdp", "sharding", "reshard", "fsdp_version", "shard")
    given = [words.get(word) for word in on]
    return any(value not in (None, False, [], 0, 1) for value in given)


def _checked(words: Words, stage: int) -> int:
    if stage > 3:
        raise DocumentError(
            "is not a stage of ZeRO",
            field=words.place("zero_stage"),
            value=stage,
            remedy="use 0, 1, 2 or 3",
        )
    return stage


def _fsdp_words(words: Words) -> tuple[str, list[str]]:
    """Return the key of the options of `fsdp` and the options in small letters."""
    word = "fsdp_switch" if "fsdp_switch" in words else "fsdp"
    given: Any = words.get(word)
    if isinstance(given, bool) or given is None:
        return words.place(word), []
    options = given if isinstance(given, list) else str(given).split()
    return words.place(word), [str(one).lower() for one in options]


def _fsdp_options(words: Words) -> str | None:
    """Return the strategy that the words of `fsdp` name: `shard_grad_op offload`."""
    place, options = _fsdp_words(words)
    found = None
    for option in options:
        name = option.upper()
        if name in HYBRIDS:
            raise DocumentError(
                "keeps one copy a node, and nothing says how many nodes there are",
                field=place,
                value=option,
                remedy="use full_shard, and parallelism_config with dp_replicate_size",
            )
        if name not in STRATEGIES and option not in _BESIDE:
            known = [one.lower() for one in STRATEGIES if len(one) > 1 and one not in HYBRIDS]
            raise DocumentError(
                "is not an option of fsdp",
                field=place,
                value=option,
                remedy=f"use true, or of {', '.join((*known, 'offload', 'auto_wrap'))}",
            )
        found = name if name in STRATEGIES else found
    return found


def _says_offload(words: Words) -> bool:
    return "offload" in _fsdp_words(words)[1]


def _strategy_name(words: Words) -> str | None:
    """Return the strategy by name, which some write under the key of resharding."""
    word = "sharding"
    if isinstance(words.get("reshard"), str):
        word = "reshard"
    given = words.text(word)
    if given is None:
        return None
    if given.upper() not in STRATEGIES:
        raise DocumentError(
            "is not read",
            field=words.place(word),
            value=given,
            remedy=f"use one of {', '.join(n for n in STRATEGIES if len(n) > 1)}",
        )
    return given.upper()


def _moved(words: Words, stage: int, *, also: bool = False) -> tuple[Offload, ...]:
    """Return the states that lie on the host."""
    found = []
    if also or words.flag("offload"):
        if stage != 3:
            words.said.append("parameters that stay gathered are priced on the device")
            return (Offload.OPTIMIZER,)
        return (Offload.OPTIMIZER, Offload.PARAMETERS)
    for word, item, least in (
        ("offload_optimizer", Offload.OPTIMIZER, 1),
        ("offload_parameters", Offload.PARAMETERS, 3),
    ):
        given = words.get(word)
        if given in (None, False, "none"):
            continue
        if stage < least:
            raise DocumentError(
                f"needs ZeRO stage {least} or more",
                field=words.place(word),
                value=f"stage {stage}",
                remedy=f"use stage {least}, or remove it",
            )
        found.append(item)
    return tuple(found)


def checkpointing_of(words: Words) -> tuple[ActivationCheckpointing, tuple[Offload, ...]]:
    """Return what backward finds of forward, and whether that lies on the host.

    The older of two names counts where the newer is not given.

    Raises:
        DocumentError: if the way is not modelled.
    """
    kept = ActivationCheckpointing.NONE
    wrapped = _way(words, "fsdp_checkpointing")
    moved: tuple[Offload, ...] = ()
    if not words.flag("no_checkpointing"):
        newer = words.get("checkpointing") is not None
        kept, moved = _way(words, "checkpointing" if newer else "older_checkpointing")
    if kept is ActivationCheckpointing.NONE:
        kept, moved = wrapped
    return kept, (Offload.ACTIVATIONS,) if words.flag("offload_activations") else moved


def _way(words: Words, word: str) -> tuple[ActivationCheckpointing, tuple[Offload, ...]]:
    given = words.text(word) or "none"
    if given not in _CHECKPOINTING:
        raise DocumentError(
            "is not modelled",
            field=words.place(word),
            value=given,
            remedy="use true, false, or a way that is: full, selective, offload",
        )
    return _CHECKPOINTING[given]
