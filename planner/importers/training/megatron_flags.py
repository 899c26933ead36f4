"""Flags of Megatron-LM in a text: those that say how a model is split, with their values.

Names and values are those of Megatron-LM 0.19.2, `megatron/training/arguments.py`. The text may be
a shell script: flags are looked for wherever they stand (`planner.importers.training.shell_words`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from planner.errors import DocumentError
from planner.importers.training.shell_words import END, shell_words

_NUMBERS = {
    "--tensor-model-parallel-size",
    "--pipeline-model-parallel-size",
    "--num-virtual-stages-per-pipeline-rank",
    "--num-layers-per-virtual-pipeline-stage",
    "--decoder-first-pipeline-num-layers",
    "--decoder-last-pipeline-num-layers",
    "--context-parallel-size",
    "--expert-model-parallel-size",
    "--expert-tensor-parallel-size",
    "--micro-batch-size",
    "--global-batch-size",
    "--seq-length",
    "--recompute-num-layers",
    "--cpu-offloading-num-layers",
    "--num-distributed-optimizer-instances",
    "--num-layers",
    "--hidden-size",
}
_WORDS = {
    "--pipeline-model-parallel-layout": None,
    "--cp-comm-type": ("p2p", "a2a", "allgather", "a2a+p2p"),
    "--recompute-granularity": ("full", "selective"),
    "--moe-token-dispatcher-type": ("allgather", "alltoall", "flex"),
    "--recompute-method": ("uniform", "block"),
    "--data-parallel-sharding-strategy": (
        "no_shard",
        "optim",
        "optim_grads",
        "optim_grads_params",
    ),
    "--optimizer-offload-fraction": None,
    "--zero-stage": ("0", "1", "2", "3"),
    "--deepspeed-config": None,
    "--hybrid-layer-pattern": None,
    "--hybrid-override-pattern": None,
    "--fp8-format": None,
    # held against the model, or of the job; what else is said of them is the script's matter
    "--num-attention-heads": None,
    "--num-query-groups": None,
    "--kv-channels": None,
    "--ffn-hidden-size": None,
    "--num-experts": None,
    "--moe-router-topk": None,
    "--optimizer": None,
    "--clip-grad": None,
    "--attention-dropout": None,
    "--hidden-dropout": None,
}
_LISTS = {"--recompute-modules"}
SWITCHES = {
    "--sequence-parallel",
    "--bf16",
    "--fp16",
    "--use-distributed-optimizer",
    "--overlap-grad-reduce",
    "--tp-comm-overlap",
    "--fp8-param-gather",
    "--use-megatron-fsdp",
    "--use-torch-fsdp2",
    "--recompute-activations",
    "--account-for-embedding-in-pipeline-split",
    "--account-for-loss-in-pipeline-split",
    "--optimizer-cpu-offload",
    "--group-query-attention",
    "--cross-entropy-loss-fusion",
    "--grad-reduce-in-bf16",
    "--accumulate-allreduce-grads-in-fp32",
}
KNOWN = _NUMBERS | set(_WORDS) | _LISTS | SWITCHES
_LIMIT = 2**24
# Names of Megatron-DeepSpeed and of releases before 0.19.
_OLDER = {
    "--moe-expert-parallel-size": "--expert-model-parallel-size",
    "--expert-parallel-size": "--expert-model-parallel-size",
    "--model-parallel-size": "--tensor-model-parallel-size",
    "--use-custom-fsdp": "--use-megatron-fsdp",
    "--checkpoint-activations": "--recompute-granularity=full",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFlags:
    """The words after each known flag, what was assumed to find them, and the other flags."""

    values: Mapping[str, list[str]]
    assumptions: tuple[str, ...]
    others: tuple[str, ...]


def flags_in(text: str, *, source: str) -> FoundFlags:
    """Return the words after each known flag in `text`; the last of a repeated flag holds.

    Raises:
        DocumentError: if quotes are open, or a flag is all but one that is known.
    """
    given = shell_words(text, source=source)
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    for word in given.words:
        if word == END:
            current = None
        elif word.startswith("--") and len(word) > 2:
            name, _, value = word.partition("=")
            name, value = _newer(name.rstrip(")").replace("_", "-"), value)
            _require_spelled(name)
            current = found[name] = [value] if value else []
        elif current is not None:
            current.append(word)
    said = [
        f"{name} stands under a condition of the script: taken as given"
        for name in found
        if name in KNOWN and name in given.conditional
    ]
    return FoundFlags(
        values={name: values for name, values in found.items() if name in KNOWN},
        assumptions=(*given.assumptions, *said),
        others=tuple(name for name in found if name not in KNOWN),
    )


def _newer(name: str, value: str) -> tuple[str, str]:
    """Return a flag and its value by the newest name of the flag."""
    newest, _, implied = _OLDER.get(name, name).partition("=")
    return newest, implied or value


def _require_spelled(name: str) -> None:
    if name in KNOWN:
        return
    near = get_close_matches(name, KNOWN, n=1, cutoff=0.93)
    if near:
        raise DocumentError(
            "is not a flag of Megatron-LM",
            field=name,
            remedy=f"did you mean {near[0]}?",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """The flags that were given, read by kind."""

    values: Mapping[str, list[str]]

    def has(self, name: str) -> bool:
        """Return whether a flag was given."""
        return name in self.values

    def number(self, name: str, default: int) -> int:
        """Return a positive number; DocumentError if it is none."""
        return default if name not in self.values else self._number(name)

    def optional(self, name: str) -> int | None:
        """Return a positive number, None where the flag was not given."""
        return self._number(name) if name in self.values else None

    def _number(self, name: str) -> int:
        word = self.word(name) or ""
        if not re.fullmatch(r"\d{1,9}", word) or not 1 <= int(word) <= _LIMIT:
            variable = word.startswith("$")
            raise DocumentError(
                "is a shell variable that the file does not set"
                if variable
                else f"must be a whole number from 1 to {_LIMIT}",
                field=name,
                value=word,
                remedy="write its value" if variable else "write a positive integer",
            )
        return int(word)

    def word(self, name: str) -> str | None:
        """Return a flag's value; DocumentError where it has none or one that is not allowed."""
        if name not in self.values:
            return None
        words = self.values[name]
        if not words:
            raise DocumentError("has no value", field=name, remedy="write one after the flag")
        word = words[0].rstrip(")") if name != "--pipeline-model-parallel-layout" else words[0]
        allowed = _WORDS.get(name)
        if allowed is not None and word not in allowed:
            raise DocumentError(
                "is not among its values",
                field=name,
                value=word,
                remedy=f"use one of {', '.join(allowed)}",
            )
        return word

    def list(self, name: str) -> list[str]:
        """Return the words after a flag."""
        return [word.rstrip(")") for word in self.values.get(name, [])]
