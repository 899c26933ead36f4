"""Training format: what the keys of one framework's configuration say, as a table.

A key is named by its path, with `_` for `-`. It sets one of the words that
`planner.importers.training.settings` reads, or one of Megatron-LM's flags; or it is not priced,
which
is said where it is given; or it is refused; or it stands beside what a step costs. No other key is
known, and what is given under one is said to be ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from planner.errors import DocumentError
from planner.importers.fields import Fields, not_read, passed_over
from planner.importers.training.config_references import resolved
from planner.importers.training.words import Words, is_absent
from planner.schema.job import Stack

_DEPTH_LIMIT = 12
_NEAR = 0.9
PROGRAM = "program"
# Names that say nothing of a step wherever they stand: of the learning rate, of files and of logs.
KNOWN_ANYWHERE = frozenset(
    [
        "_component_",
        "_target_",
        "betas",
        "eps",
        "experiment_name",
        "log_interval",
        "lr",
        "max_steps",
        "min_lr",
        "name",
        "num_epochs",
        "path",
        "path_or_dataset",
        "pretrained_model_name_or_path",
        "project_name",
        "save_freq",
        "seed",
        "test_freq",
        "total_epochs",
        "train_files",
        "train_iters",
        "train_steps",
        "val_files",
        "weight_decay",
    ]
)

# What a step has and no table prices, by the names that Megatron-Core and what is built on it use.
UNPRICED_ANYWHERE: Mapping[str, str] = {
    "moe_shared_expert_overlap": "the shared expert is priced beside no exchange",
    "use_precision_aware_optimizer": "its states are priced in 32 bits",
}
# Names that are told where they stand in a section whose keys are passed over otherwise.
_OF_A_STEP = re.compile(
    r"(?:^|[._])(?:fp8|float8|mxfp8|peft|lora|attn|attention|compile|offload|recompute|freeze"
    r"|checkpointing|quantiz\w+|optimizer|implementation|precision|dtype|accumulation|clip\w*"
    r"|micro_batch\w*)(?:[._]|$)"
)
# Sections of other models, of sampling, of data and of files, whose keys have such names too.
_OF_OTHERS = frozenset(
    [
        *("checkpoint", "checkpointer", "checkpointing", "checkpoints", "data", "data_stages"),
        *("dataset", "datasets", "test_datasets", "train_loader", "eval_loader", "tokenizer"),
        *("critic", "ref", "reward", "reward_model", "rollout", "generation", "teacher", "env"),
        *("value", "loss_fn", "dtensor_cfg", "megatron_cfg"),  # the backend that is switched off
        *("logger", "profiler", "scheduler", "validation"),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """The table of one framework.

    `signature` has the ways to know a file: all paths of one of them are there, with the value
    after `=`, or are not, after `!`. `assumed` has what the framework takes where a file says
    nothing, which is said; `fixed` what it always does. `convert` turns the value under a path into
    that of its word, which numbers of several keys are multiplied into where it ends in `*`, and a
    switch is turned round into where it begins with `!`; a key may have several words, with blanks
    between. A key is `unpriced` where it is on, or has the value after `=`. A name in `beside` is a
    key, or a section none of whose keys is read; with `.*` it is one of data, logs or other models
    of which some are.
    """

    name: str
    title: str
    signature: tuple[tuple[str, ...], ...]
    sets: Mapping[str, str]
    unpriced: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    beside: str = ""
    assumed: Mapping[str, object] = field(default_factory=dict)
    fixed: Mapping[str, object] = field(default_factory=dict)
    convert: Mapping[str, Callable[[Any], object]] = field(default_factory=dict)
    stack: Stack = Stack.TORCH
    notes: tuple[str, ...] = ()

    def recognises(self, leaves: Mapping[str, Any]) -> bool:
        """Return whether the keys are those of this framework."""
        return any(all(_holds(mark, leaves) for mark in way) for way in self.signature)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFormat:
    """A framework whose files are recognised and not read, with what to give in their place."""

    title: str
    signature: tuple[tuple[str, ...], ...]
    remedy: str

    def recognises(self, leaves: Mapping[str, Any]) -> bool:
        """Return whether the keys are those of this framework."""
        return any(all(_holds(mark, leaves) for mark in way) for way in self.signature)


def under(section: str, keys: Mapping[str, str]) -> dict[str, str]:
    """Return the keys as they stand in a section."""
    return {f"{section}.{name}": word for name, word in keys.items()}


def leaves_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value at the end of each path."""
    return dict(_leaves(fields, frozenset()))


def words_of(table: Format, fields: Mapping[str, Any]) -> Words:
    """Return what the fields say by the table.

    Raises:
        DocumentError: if a key is refused, is nearly one of those read, or contradicts another.
    """
    words = Words(
        title=table.title, assumed=table.assumed, fixed=table.fixed, places=_places(table)
    )
    words.said.extend(table.notes)
    left = _Left(beside=_beside_of(table))
    for path, value in _leaves(fields, frozenset(table.sets)):
        if _plain(path) in table.sets:
            _take(table, words, path, resolved(value, fields, path))
        elif _is_open(table, words, path, value) and _plain(path) not in left.beside:
            _require_spelled(table, path)
            left.add(path, value)
    words.said.extend(left.lines(table.title))
    return words


@dataclass(frozen=True, slots=True, kw_only=True)
class _Left:
    """The keys that a table does not read: those told one by one, and those of whole sections."""

    beside: frozenset[str]
    keys: list[str] = field(default_factory=list)
    sections: dict[str, list[str]] = field(default_factory=dict)

    def add(self, path: str, value: object) -> None:
        """Keep a key, unless its name says nothing of a step wherever it stands."""
        key = _plain(path)
        quiet = key.rpartition(".")[2] in KNOWN_ANYWHERE
        section = next((one for one in _sections(path) if _plain(one) in self.beside), None)
        known = quiet or section is not None
        if not known or (_sounds_like_a_step(key, self.beside) and not _is_off(value)):
            self.keys.append(path)
        elif section is not None and not quiet:
            self.sections.setdefault(section, []).append(path[len(section) + 1 :])

    def lines(self, title: str) -> Iterator[str]:
        """Yield what is told of them."""
        if self.keys:
            yield not_read(title, self.keys)
        if self.sections:
            yield passed_over(title, self.sections)


def _take(table: Format, words: Words, path: str, value: Any) -> None:
    key = _plain(path)
    convert = table.convert.get(key)
    for word in table.sets[key].split():
        if not word.startswith("!"):
            words.take(word, path, convert(value) if convert else value)
        elif not is_absent(value):
            words.take(word[1:], path, not Fields({path: value}).flag(path, False))


def _is_open(table: Format, words: Words, path: str, value: Any) -> bool:
    """Return whether a key says something that the table neither refuses nor calls not priced."""
    key = _plain(path)
    if is_absent(value) or key == PROGRAM:
        return False
    remedy = _covering(key, table.refused)
    meaning = _covering(key, table.unpriced) or UNPRICED_ANYWHERE.get(key.rpartition(".")[2])
    at_value = table.unpriced.get(f"{key}={str(value).lower()}")
    if remedy is not None and not _is_off(value):
        raise DocumentError("is not modelled", field=path, value=value, remedy=remedy)
    if at_value or (meaning is not None and not _is_off(value)):
        words.said.append(f"{path}: {at_value or meaning}")
    return remedy is None and meaning is None and at_value is None


def _is_off(value: object) -> bool:
    """Return whether an option is off: false, or 0 or 1 of something that is counted."""
    return value is False or (type(value) is int and value in (0, 1))


def _places(table: Format) -> dict[str, str]:
    """Return where each word is said first, for messages on what a file leaves out."""
    return {
        word.strip("!*"): path
        for path, words in reversed(list(table.sets.items()))
        for word in words.split()
    }


def _plain(path: str) -> str:
    return path.replace("-", "_")


def _beside_of(table: Format) -> frozenset[str]:
    """Return the names beside a step; sections that hold a key of the table only with `.*`."""
    read = {section for path in table.sets for section in _sections(path)[1:]}
    names = table.beside.split()
    others = {name.removesuffix(".*") for name in names if name.endswith(".*")}
    return frozenset({name for name in names if name not in read} | others)


def _sounds_like_a_step(key: str, beside: frozenset[str]) -> bool:
    """Return whether a key in a section that is passed over whole is named like part of a step."""
    section = next((one for one in _sections(key) if one in beside), key)
    inner = key[len(section) + 1 :]
    return bool(_OF_A_STEP.search(inner)) and not _OF_OTHERS & {*key.split(".")}


def _covering(key: str, keys: Mapping[str, str]) -> str | None:
    """Return what stands for the key, or for a section that it is in."""
    return next((keys[section] for section in _sections(key) if section in keys), None)


def _sections(key: str) -> list[str]:
    """Return the path, and those of all sections that it is in, the innermost first."""
    parts = key.split(".")
    return [".".join(parts[:count]) for count in range(len(parts), 0, -1)]


def _leaves(
    fields: Mapping[str, Any], whole: frozenset[str], prefix: str = "", depth: int = 0
) -> Iterator[tuple[str, Any]]:
    """Yield paths and values; mappings under a path of `whole` are values."""
    for name, value in fields.items():
        path = f"{prefix}{name}"
        inner = isinstance(value, Mapping) and _plain(path) not in whole
        if inner and depth < _DEPTH_LIMIT:
            yield from _leaves(value, whole, f"{path}.", depth + 1)
        else:
            yield path, value


def _holds(mark: str, leaves: Mapping[str, Any]) -> bool:
    if mark.startswith("!"):
        return not _holds(mark[1:], leaves)
    path, _, value = mark.partition("=")
    if value:
        return any(_plain(p) == path and str(v).lower() == value for p, v in leaves.items())
    return any(_plain(p) == path or _plain(p).startswith(f"{path}.") for p in leaves)


def _require_spelled(table: Format, path: str) -> None:
    section, _, name = _plain(path).rpartition(".")
    alike = {
        known.rpartition(".")[2]: known
        for known in (*table.sets, *table.refused)
        if known.rpartition(".")[0] == section
    }
    near = get_close_matches(name, list(alike), n=1, cutoff=_NEAR)
    if near:
        raise DocumentError(
            f"is not a key of {table.title}", field=path, remedy=f"did you mean {alike[near[0]]}?"
        )
