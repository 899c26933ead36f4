"""Scalars in text: the number, truth value or word that an argument of a command stands for."""

from __future__ import annotations

import re
from typing import Any

_WORDS = {
    "true": True,
    "false": False,
    "yes": True,
    "no": False,
    "null": None,
    "none": None,
    "~": None,
}
_NO_NUMBERS = {"yes", "no"}  # words of their own in some files: `mixed_precision: 'no'`
_DIGITS_LIMIT = 18


def scalar(word: str) -> object:
    """Return what a word says: a number, true or false, nothing, a list in brackets, or itself."""
    text = word.strip().strip("'\"")
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if re.fullmatch(rf"[-+]?\d{{1,{_DIGITS_LIMIT}}}", text):
        return int(text)
    if re.fullmatch(r"[-+]?(\d+\.\d*|\.?\d+)([eE][-+]?\d{1,3})?", text):
        return float(text)
    if text.startswith("[") and text.endswith("]"):
        return [scalar(one) for one in text[1:-1].split(",") if one.strip()]
    return text


def with_numbers(value: Any) -> Any:
    """Return a document with what stands there as text and is a number, or true or false, as that.

    Programs read `"4"`, `1e-4` and `"true"` so, whatever their YAML or JSON makes of them.
    """
    if isinstance(value, dict):
        return {name: with_numbers(item) for name, item in value.items()}
    if isinstance(value, list):
        return [with_numbers(item) for item in value]
    found = scalar(value) if isinstance(value, str) and value.lower() not in _NO_NUMBERS else value
    return found if isinstance(found, bool | int | float) else value
