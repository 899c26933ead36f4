"""Cursors: where a page of a list ended, opaque to clients."""

from __future__ import annotations

import base64
import binascii
import re

from planner.errors import InputError

_IDENTIFIER = re.compile(r"[A-Za-z0-9._-]{1,64}")


def cursor(position: int) -> str:
    """Return the cursor that stands for `position`, a positive number of at most 63 bits."""
    return _written(str(position))


def position(given: str) -> int:
    """Return the position that a cursor stands for.

    Raises:
        InputError: if it is none of ours.
    """
    try:
        found = int(_read(given))
    except ValueError:
        found = -1
    if not 0 < found < 2**63:
        raise foreign_cursor(given)
    return found


def identifier_cursor(identifier: str) -> str:
    """Return the cursor that stands for what comes after the thing with that id."""
    return _written(identifier)


def identifier(given: str) -> str:
    """Return the id of the thing after which a cursor goes on.

    Raises:
        InputError: if it is none of ours.
    """
    found = _read(given)
    if not _IDENTIFIER.fullmatch(found):
        raise foreign_cursor(given)
    return found


def foreign_cursor(given: str) -> InputError:
    """Return the complaint about a cursor that no page gave."""
    return InputError(
        "is not a cursor of this service",
        field="cursor",
        value=given,
        remedy="use next_cursor of the page before, or leave it out",
    )


def _written(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read(given: str) -> str:
    """Return the text of a cursor, which is empty where there is none."""
    try:
        return base64.urlsafe_b64decode(given + "=" * (-len(given) % 4)).decode("ascii")
    except (binascii.Error, ValueError):
        return ""
