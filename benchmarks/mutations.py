"""Mutations: what a careless or hostile hand does to a document."""

from __future__ import annotations

import copy
from collections.abc import Callable
from random import Random
from typing import Any

Node = tuple[Any, Any]
"""A dictionary or list, and a key or index in it."""

WRONG_TYPES: tuple[Any, ...] = (
    None,
    True,
    False,
    "",
    "8",
    "text",
    "-1",
    "1e400",
    "nan",
    [],
    {},
    [1],
    [[]],
    {"a": 1},
    3.7,
    1.0,
)
ABSURD_NUMBERS: tuple[Any, ...] = (
    0,
    -1,
    -(2**31),
    2**31,
    2**40,
    2**53 + 1,
    2**63,
    2**64,
    10**30,
    10**400,
    -0.0,
    5e-324,
    1e-9,
    0.999999,
    1e16,
    1e308,
    float("nan"),
    float("inf"),
    float("-inf"),
)
ODD_TEXT: tuple[str, ...] = (
    "\x00",
    "\ud800",
    "\udfff\ud800",
    "💥" * 50,
    "\u202egnp.exe",
    "a\u0301" * 20,
    "ﷺ" * 100,
    "x" * 100_000,
    "../../etc/passwd",
    "{{7*7}}",
    "%s%n",
    "\n\r\t",
    "\uff18",
    "\u0661\u0662",
)
PLAUSIBLE_NUMBERS: tuple[Any, ...] = (1, 2, 3, 5, 7, 12, 13, 17, 64, 100, 127, 128, 1000, 4096)
WORDS: tuple[str, ...] = (
    "gpipe",
    "zb_v",
    "interleaved_1f1b",
    "dualpipe_v",
    "fp8",
    "fp32",
    "megatron",
    "deepspeed",
    "memory",
    "devices",
    "cost",
    "full",
    "mixture",
    "latent",
    "cross",
    "encoder",
    "h100-sxm5-80gb",
    "cpu-gloo",
    "optimizer",
    "parameters",
)


def mistaken(document: Any, random: Random) -> Any:
    """Return a copy of the document with one to three values that may well have been meant."""
    changed = copy.deepcopy(document)
    nodes = [(h, k) for h, k in _nodes(changed) if isinstance(h[k], bool | int | float)]
    for holder, key in random.sample(nodes, min(len(nodes), random.choice((1, 1, 2, 3)))):
        holder[key] = _near(holder[key], random)
    return changed


def mutated(document: Any, random: Random) -> Any:
    """Return a copy of the document with one to three things done to it, whatever they are."""
    changed = copy.deepcopy(document)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        changed = _mutated_once(changed, random)
    return changed


def mutated_text(text: str, random: Random) -> bytes:
    """Return the document's text, damaged as text."""
    return random.choice(_DAMAGES)(text, random)


def _cut(text: str, random: Random) -> bytes:
    return text[: random.randrange(len(text) + 1)].encode()


def _with_byte(text: str, random: Random) -> bytes:
    place = random.randrange(len(text) + 1)
    return text.encode()[:place] + bytes([random.randrange(256)]) + text.encode()[place:]


def _with_brackets(text: str, random: Random) -> bytes:
    return b"[" * random.choice((70, 5000)) + text.encode()


def _deep(text: str, random: Random) -> bytes:
    depth = random.choice((65, 3000))
    nested = '{"a":' * depth + "1" + "}" * depth
    return f'{text[:-1]}, "deep": {nested}}}'.encode()


def _with_number(text: str, random: Random) -> bytes:
    number = random.choice(("NaN", "-Infinity", "1e999", "9" * 5000, "0x10", "1_000"))
    parts = text.split(": ")
    place = random.randrange(len(parts))
    parts[place] = f"{number}, {parts[place]}"
    return ": ".join(parts).encode()


def _encoded(text: str, random: Random) -> bytes:
    return text.encode(random.choice(("utf-16", "utf-32", "utf-8-sig")))


def _with_escape(text: str, random: Random) -> bytes:
    place = random.randrange(len(text) + 1)
    inserted = random.choice(("\\ud800", "\\u0000", ",,", "//", "'"))
    return (text[:place] + inserted + text[place:]).encode()


_DAMAGES: tuple[Callable[[str, Random], bytes], ...] = (
    _cut,
    _with_byte,
    _with_brackets,
    _deep,
    _with_number,
    _encoded,
    _with_escape,
)


def _mutated_once(document: Any, random: Random) -> Any:
    nodes = list(_nodes(document))
    if not nodes:
        return copy.deepcopy(random.choice(WRONG_TYPES))
    holder, key = random.choice(nodes)
    kind = random.randrange(12)
    if kind < 2:
        holder[key] = copy.deepcopy(random.choice(WRONG_TYPES))
    elif kind < 4:
        holder[key] = random.choice(ABSURD_NUMBERS)
    elif kind < 6:
        holder[key] = _near(holder[key], random)
    elif kind == 6:
        holder[key] = random.choice(ODD_TEXT)
    elif kind == 7:
        holder[key] = random.choice(WORDS)
    else:
        _reshape(document, (holder, key), nodes, random)
    return document


def _reshape(document: Any, node: Node, nodes: list[Node], random: Random) -> None:
    """Remove, rename, swap, repeat or nest."""
    holder, key = node
    kind = random.randrange(6)
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, dict):
        holder[random.choice((*ODD_TEXT, "Hidden_Size", "extra"))] = holder.pop(key)
    elif kind == 2 and isinstance(document, dict):
        document[random.choice(("extra", "schema_version", "runs", "model_type", "levels"))] = (
            random.choice((1, 2, [], {}, "llama"))
        )
    elif kind == 3:
        other_holder, other_key = random.choice(nodes)
        value = copy.deepcopy(other_holder[other_key])
        other_holder[other_key] = copy.deepcopy(holder[key])
        if _holds(holder, key):
            holder[key] = value
    elif kind == 4 and isinstance(holder, list):
        holder.extend([copy.deepcopy(holder[key])] * random.choice((1, 2, 70, 2000)))
    else:
        for _ in range(random.choice((1, 3, 70))):
            holder[key] = [holder[key]] if random.random() < 0.5 else {"a": holder[key]}


def _holds(holder: Any, key: Any) -> bool:
    return key in holder if isinstance(holder, dict) else key < len(holder)


def _near(value: Any, random: Random) -> Any:
    """Return a number that a user may well have meant, so that the document stays readable."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        changed = (value * 2, value * 3, value // 2, value + 1, value - 1, value * 1024)
        return random.choice((*changed, *PLAUSIBLE_NUMBERS))
    if isinstance(value, float):
        return value * random.choice((0.5, 2.0, 1e-6, 1e6, -1.0))
    return random.choice(PLAUSIBLE_NUMBERS)


def _nodes(document: Any) -> list[Node]:
    found: list[Node] = []
    waiting = [document]
    while waiting:
        holder = waiting.pop()
        if isinstance(holder, dict):
            keys: list[Any] = list(holder)
        elif isinstance(holder, list):
            keys = list(range(len(holder)))
        else:
            continue
        for key in keys:
            found.append((holder, key))
            waiting.append(holder[key])
    return found
