"""Scalars in text: the number, truth value or word that an argument of a command stands for."""

from __future__ import annotations

import re

_WORDS = {
    "true": True,
    "false": False,
    "yes": True,
    "no": False,
    "null": None,
    "none": None,
    "~": None,
}
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
