"""Fields: typed reads from a foreign configuration, each failure naming field, value and remedy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.errors import DocumentError

SIZE_LIMIT = 2**31


class Fields:
    """A foreign mapping, read field by field."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def size(self, name: str, default: int | None = None, *, minimum: int = 1) -> int:
        """Return the whole number under `name`, or `default` where it is absent or null.

        Raises:
            DocumentError: if it is absent without default, not whole, or out of bounds.
        """
        value = self._values.get(name)
        if value is None:
            if default is None:
                raise DocumentError(
                    "is required", field=name, remedy=f"add {name} to the configuration"
                )
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise DocumentError(
                "must be a whole number", field=name, value=value, remedy="write an integer"
            )
        if not minimum <= value <= SIZE_LIMIT:
            raise DocumentError(
                f"must lie between {minimum} and {SIZE_LIMIT}",
                field=name,
                value=value,
                remedy="check the number of digits and the sign",
            )
        return value

    def optional_size(self, name: str) -> int | None:
        """Return the positive whole number under `name`, or None where it is absent or null."""
        return None if self._values.get(name) is None else self.size(name)

    def flag(self, name: str, default: bool) -> bool:
        """Return the boolean under `name`, or `default` where it is absent or null.

        Raises:
            DocumentError: if it is not a boolean.
        """
        value = self._values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise DocumentError(
                "must be true or false", field=name, value=value, remedy="write true or false"
            )
        return value

    def texts(self, name: str) -> tuple[str, ...] | None:
        """Return the list of words under `name`, or None where it is absent or null.

        Raises:
            DocumentError: if it is not a list of strings.
        """
        value = self._values.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise DocumentError(
                "must be a list of words", field=name, value=value, remedy="write a list of strings"
            )
        return tuple(value)

    def indices(self, name: str) -> frozenset[int]:
        """Return the list of whole numbers under `name`, empty where it is absent or null.

        Raises:
            DocumentError: if it is not a list of whole numbers.
        """
        value = self._values.get(name) or []
        if not isinstance(value, list) or not all(
            isinstance(item, int) and not isinstance(item, bool) for item in value
        ):
            raise DocumentError(
                "must be a list of whole numbers",
                field=name,
                value=value,
                remedy="write a list of integers",
            )
        return frozenset(value)


def require_divides(divisor_name: str, divisor: int, name: str, value: int) -> None:
    """Raise unless `divisor` divides `value`.

    Raises:
        DocumentError: naming both fields.
    """
    if value % divisor:
        raise DocumentError(
            f"must divide {name} {value}",
            field=divisor_name,
            value=divisor,
            remedy=f"use a divisor of {value}",
        )
