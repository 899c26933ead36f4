"""Cursors: where a page of a list ended, opaque to clients."""

from __future__ import annotations

import base64
import binascii

from planner.errors import InputError


def cursor(position: int) -> str:
    """Return the cursor that stands for `position`, a positive number of at most 63 bits."""
    return base64.urlsafe_b64encode(str(position).encode()).decode().rstrip("=")


def position(given: str) -> int:
    """Return the position that a cursor stands for.

    Raises:
        InputError: if it is none of ours.
    """
    try:
        padded = given + "=" * (-len(given) % 4)
        found = int(base64.urlsafe_b64decode(padded).decode("ascii"))
    except (binascii.Error, ValueError):
        found = -1
    if not 0 < found < 2**63:
        raise InputError(
            "is not a cursor of this service",
            field="cursor",
            value=given,
            remedy="use next_cursor of the page before, or leave it out",
        )
    return found
