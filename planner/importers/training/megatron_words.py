"""Megatron's arguments by other names: the strategy that a framework on Megatron-Core says."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import prod

from planner.errors import DocumentError
from planner.importers.training.batch import micro_batch_by_tokens
from planner.importers.training.config import Setting, TrainingConfig
from planner.importers.training.megatron import NAMES, megatron_config
from planner.importers.training.megatron_flags import SWITCHES
from planner.importers.training.numerics import precision_of
from planner.importers.training.words import Words

_GRANULARITY = "--recompute-granularity"
_OFFLOAD, _FRACTION = "--optimizer-cpu-offload", "--optimizer-offload-fraction"
_SPLITS = (
    "--tensor-model-parallel-size",
    "--pipeline-model-parallel-size",
    "--context-parallel-size",
)
_BATCHES = (("micro_batch", "--micro-batch-size"), ("global_batch", "--global-batch-size"))


def read_megatron_words(words: Words, setting: Setting) -> TrainingConfig:
    """Return the strategy and the job that the flags among the words say.

    Raises:
        DocumentError: naming the key of the file, its value and the remedy.
    """
    given = dict.fromkeys((*words.assumed, *words.values))
    values = _arguments(words, [word for word in given if word.startswith("--")])
    precision = precision_of(words)
    values |= {f"--{precision['precision']}": [], **_step(words, setting)}
    if "--num-query-groups" in values:
        values["--group-query-attention"] = []
    if _OFFLOAD in values and words.get(_FRACTION) == 0:
        words.said.append(
            f"{words.place(_OFFLOAD)} moves nothing while {words.place(_FRACTION)} is 0"
        )
        del values[_OFFLOAD]
    if "checkpointing" in words and not words.flag("checkpointing"):
        values = {flag: given for flag, given in values.items() if "--recompute" not in flag}
    back = {flag: words.place(flag) for flag in (*values, *words.places) if flag.startswith("--")}
    for word, flag in _BATCHES:
        if word in words:
            back[flag] = words.place(word)
    try:
        config = megatron_config(values, setting)
    except DocumentError as error:
        raise DocumentError(
            _translated(error.problem, back),
            field=back.get(error.field, error.field),
            value=error.value,
            remedy=_translated(error.remedy, back),
        ) from None
    said = tuple(_translated(one, back) for one in config.assumptions)
    names = {field: back.get(flag, flag) for field, flag in NAMES.items()}
    job = {**config.job, **precision, **_accumulated(words, config)}
    return replace(config, names=names, assumptions=said, job=job)


def _step(words: Words, setting: Setting) -> dict[str, list[str]]:
    """Return the batches and the checkpointing that stand under words of their own."""
    found: dict[str, list[str]] = {}
    for word, flag in _BATCHES:
        if word in words:
            times = words.size("samples_per_prompt", 1) if word == "global_batch" else 1
            found[flag] = [str(words.size(word) * times)]
    split = prod(words.size(flag, 1) for flag in _SPLITS)
    by_tokens = micro_batch_by_tokens(words, max(setting.device_count // split, 1))
    if by_tokens is not None:
        found["--micro-batch-size"] = [str(by_tokens)]
    if words.flag("checkpointing") and _GRANULARITY not in words:
        found[_GRANULARITY] = ["full"]
    return found


def _accumulated(words: Words, config: TrainingConfig) -> dict[str, object]:
    """Return the batch of a step where the file says how many micro-batches a rank adds up."""
    steps = words.optional_size("accumulation")
    if steps is None or "--global-batch-size" in words:
        return {}
    strategy = config.strategy
    ranks = strategy.shard_degree * strategy.replicate_degree
    return {"global_batch_size": strategy.micro_batch_size * ranks * steps}


def _arguments(words: Words, flags: Iterable[str]) -> dict[str, list[str]]:
    """Return the words after each flag; those that are switched off are left out."""
    found: dict[str, list[str]] = {}
    for flag in flags:
        if flag in SWITCHES:
            found |= {flag: []} if words.flag(flag) else {}
            continue
        value = words.get(flag)
        if value not in (False, None):
            found[flag] = [str(one) for one in (value if isinstance(value, list) else [value])]
    return found


def _translated(text: str, back: Mapping[str, str]) -> str:
    return re.sub(r"--[a-z0-9-]+", lambda match: back.get(match[0], match[0]), text)
