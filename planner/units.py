"""Unit constants, and how quantities are read from and written for people.

Inside, everything is SI: bytes, seconds, FLOP, bytes per second. GiB and GB exist only here.
"""

from __future__ import annotations

import math
import re

KIB = 2**10
MIB = 2**20
GIB = 2**30
TIB = 2**40

_PREFIXES = {
    "": 1.0,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "Ki": float(KIB),
    "Mi": float(MIB),
    "Gi": float(GIB),
    "Ti": float(TIB),
    "Pi": float(2**50),
}
_LEAST_SECONDS = 1e-12
_BYTES = re.compile(r"^\s*([0-9.eE+-]+)\s*(Ki|Mi|Gi|Ti|Pi|k|M|G|T|P|)B(/s)?\s*$")
_SECONDS = re.compile(r"^\s*([0-9.eE+-]+)\s*(ns|us|µs|ms|s|min|h|d)\s*$")
_SECONDS_PER = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}


def parse_bytes(text: str) -> float:
    """Return the number of bytes (or bytes per second) that `text` such as `80 GiB` names.

    Raises:
        ValueError: if `text` is not a number followed by a byte unit.
    """
    match = _BYTES.match(text)
    if match is None:
        raise ValueError(
            f"{text!r} is not a byte quantity; write one such as '80 GiB' or '50 GB/s'"
        )
    return float(match.group(1)) * _PREFIXES[match.group(2)]


def parse_seconds(text: str) -> float:
    """Return the seconds that `text` such as `5 us` names.

    Raises:
        ValueError: if `text` is not a number followed by a time unit.
    """
    match = _SECONDS.match(text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration; write one such as '5 us' or '1.5 s'")
    return float(match.group(1)) * _SECONDS_PER[match.group(2)]


def format_bytes(count: float) -> str:
    """Return `count` bytes for a reader, in binary units: `1.5 GiB`."""
    for unit, scale in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if abs(count) >= scale:
            return f"{_four_digits(count / scale)} {unit}"
    return f"{count:.0f} B"


def counted(count: int, word: str) -> str:
    """Return how many there are of what `word` names in the singular: `1 device`, `2 devices`."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def format_seconds(seconds: float) -> str:
    """Return `seconds` for a reader, in the unit that suits: `3.21 ms`.

    What is under a picosecond is what rounding left of a difference, and reads `0 s`.
    """
    if not math.isfinite(seconds):
        return str(seconds)
    rounded = float(f"{seconds:.4g}")
    if abs(rounded) < _LEAST_SECONDS:
        return "0 s"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(rounded) >= scale:
            return f"{_four_digits(seconds / scale)} {unit}"
    return f"{seconds * 1e9:.4g} ns"


def format_count(count: float) -> str:
    """Return `count` for a reader with a decimal prefix: `8.03 G`."""
    for unit, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(count) >= scale:
            return f"{_four_digits(count / scale)} {unit}"
    return f"{count:.4g}"


def _four_digits(value: float) -> str:
    """Return `value` to four digits, and a longer one whole: never as a power of ten."""
    return f"{value:.4g}" if abs(value) < 9999.5 else f"{value:.0f}"
