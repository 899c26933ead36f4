"""Known devices: profiles by their own names, and by shorter ones that mean one of them.

A short name keeps the word that names the model and may leave out all others: h100, h100-pcie,
a100-80gb, 4090, rtx4090. Where it fits several profiles and one alone of them sits on a board of
its own (SXM), the board is taken, as everybody means it; else the name is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from itertools import product

from planner.errors import InputError
from planner.hardware import device_names, unknown_device

_VENDOR = re.compile(r"^(?:nvidia|amd|geforce|instinct|tesla)[-_. ]+")
_BRANDS = frozenset({"rtx", "tpu", "ascend"})  # no model by itself
_BOARD = re.compile(r"sxm[0-9]*")
_MEMORY = re.compile(r"([0-9]+)gb")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDevice:
    """A device that has a profile, and what was assumed where its name was short."""

    name: str
    assumption: str | None = None


def known_device(text: str, *, field: str) -> KnownDevice:
    """Return the device that `text` names.

    Raises:
        InputError: if it names none, or several of which none is meant more than the others.
    """
    plain = text.strip().lower()
    if plain in device_names():
        return KnownDevice(name=plain)
    found = devices_fitting(plain)
    if not found:
        raise unknown_device(plain, field=field)
    boards = [name for name in found if any(map(_BOARD.fullmatch, name.split("-")))]
    if len(found) > 1 and len(boards) != 1:
        raise InputError(
            "names several devices",
            field=field,
            value=text,
            remedy=f"write {', '.join(found[:-1])} or {found[-1]}",
        )
    (name,) = boards if len(found) > 1 else found
    others = [other for other in found if other != name]
    cards = f"; cards are {' and '.join(others)}" if others else ""
    return KnownDevice(name=name, assumption=f"{plain} was taken as {name}{cards}")


def devices_fitting(text: str) -> tuple[str, ...]:
    """Return the devices whose name, or a shorter form of it, is `text`."""
    return _short_names().get(_letters(_VENDOR.sub("", text.strip().lower())), ())


@cache
def _short_names() -> dict[str, tuple[str, ...]]:
    """Return the devices that each short name fits, by its letters and digits alone."""
    found: dict[str, tuple[str, ...]] = {}
    for name in device_names():
        for short in sorted(_spellings(name)):
            found[short] = (*found.get(short, ()), name)
    return found


def _spellings(name: str) -> set[str]:
    """Return the ways to write `name`: the model's word kept, each other one left out or short."""
    words = name.split("-")
    model = next(index for index, word in enumerate(words) if word not in _BRANDS)
    ways = []
    for index, word in enumerate(words):
        memory = _MEMORY.fullmatch(word)
        short = {word, "sxm"} if _BOARD.fullmatch(word) else {word}
        short |= {f"{memory[1]}g", memory[1]} if memory else set()
        ways.append(short if index == model else short | {""})
    return {"".join(chosen) for chosen in product(*ways)}


def _letters(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "", text)
