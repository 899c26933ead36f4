"""Fields: typed reads from a foreign configuration, each failure naming field, value and remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planner.errors import DocumentError

SIZE_LIMIT = 2**24
POSITION_LIMIT = 2**31
LAYER_LIMIT = 4096
_SHOWN_DIGITS = 30
_SHOWN_NAMES = 24
_SHOWN_KEYS = 8


class Fields:
    """A foreign mapping, read field by field.

    `aliases` maps other spellings of a field to the name that it is read by; where both are there,
    they have to agree.
    `section` names the field that the mapping stands under, for messages. `asked` gathers the paths
    of all fields that were looked at, of sections too.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        *,
        aliases: Mapping[str, str] | None = None,
        section: str = "",
        asked: set[str] | None = None,
    ) -> None:
        self.asked = set[str]() if asked is None else asked
        self._values = values
        self._aliases = aliases
        self._section = section
        self._prefix = f"{section}." if section else ""
        for alias, name in (aliases or {}).items():
            self._require_agreement(alias, name)
        self._spelling = {
            name: alias
            for alias, name in (aliases or {}).items()
            if alias in values and name not in values
        }

    def __contains__(self, name: str) -> bool:
        """Return whether the field is there, be it null."""
        return self._seen(name) in self._values

    def filled(self, defaults: Mapping[str, Any]) -> Fields:
        """Return the same fields, those absent under every name taken from `defaults`."""
        absent = {name: value for name, value in defaults.items() if name not in self}
        return self._with({**absent, **self._values})

    def replaced(self, values: Mapping[str, Any]) -> Fields:
        """Return the same fields but for those in `values`, whatever they say."""
        return self._with({**self._values, **values})

    def _with(self, values: Mapping[str, Any]) -> Fields:
        return Fields(values, aliases=self._aliases, section=self._section, asked=self.asked)

    def spelling(self, name: str) -> str:
        """Return how the configuration spells `name`, with the section that it stands in."""
        return self._prefix + self._key(name)

    def section(
        self,
        name: str,
        *,
        aliases: Mapping[str, str] | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> Fields:
        """Return the fields of the mapping under `name`, those absent taken from `defaults`.

        Raises:
            DocumentError: if it is absent or no mapping.
        """
        value = self._value(name)
        if value is None:
            raise DocumentError(
                "is required",
                field=self.spelling(name),
                remedy=f"add {name}, a configuration of its own",
            )
        if not isinstance(value, Mapping):
            raise DocumentError(
                "must be a mapping of fields",
                field=self.spelling(name),
                value=type(value).__name__,
                remedy="write a configuration of its own",
            )
        return Fields(
            {**(defaults or {}), **value},
            aliases=aliases,
            section=self.spelling(name),
            asked=self.asked,
        )

    def size(
        self, name: str, default: int | None = None, *, minimum: int = 1, limit: int = SIZE_LIMIT
    ) -> int:
        """Return the whole number under `name`, or `default` where it is absent or null.

        Raises:
            DocumentError: if it is absent without default, not whole, or out of bounds.
        """
        value = self._value(name)
        name = self.spelling(name)
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
                "must be a whole number",
                field=name,
                value=_quoted(value),
                remedy="write an integer",
            )
        if not minimum <= value <= limit:
            raise DocumentError(
                f"must lie between {minimum} and {limit}",
                field=name,
                value=_shown(value),
                remedy="check the number of digits and the sign",
            )
        return value

    def optional_size(
        self, name: str, default: int | None = None, *, limit: int = SIZE_LIMIT
    ) -> int | None:
        """Return the positive whole number under `name`, None where null, else `default`.

        Raises:
            DocumentError: if it is not whole or out of bounds.
        """
        if name not in self:
            return default
        return None if self._value(name) is None else self.size(name, limit=limit)

    def optional_number(self, name: str) -> float | None:
        """Return the positive number under `name`, None where it is absent or null.

        Raises:
            DocumentError: if it is no number, or none that is finite and positive.
        """
        return None if self._value(name) is None else self.number(name, 1.0)

    def number(self, name: str, default: float) -> float:
        """Return the positive number under `name`, or `default` where it is absent or null.

        Raises:
            DocumentError: if it is no number, or none that is finite and positive.
        """
        value = self._value(name)
        if value is None:
            return default
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 < value < SIZE_LIMIT:
            raise DocumentError(
                "must be a positive number",
                field=self.spelling(name),
                value=_shown(value) if isinstance(value, int) else _quoted(value),
                remedy="write a number above 0",
            )
        return float(value)

    def chance(self, name: str, default: float) -> float:
        """Return the number from 0 to 1 under `name`, or `default` where it is absent or null.

        Raises:
            DocumentError: if it is no such number.
        """
        value = self._value(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise DocumentError(
                "must be a number from 0 to 1",
                field=self.spelling(name),
                value=value if isinstance(value, int | float) else type(value).__name__,
                remedy="write a number from 0 to 1",
            )
        return float(value)

    def text(self, name: str) -> str | None:
        """Return the word under `name`, or None where it is absent, null or no word."""
        value = self._value(name)
        return value if isinstance(value, str) else None

    def flag(self, name: str, default: bool) -> bool:
        """Return the boolean under `name`, `default` where it is absent, and false where null.

        Raises:
            DocumentError: if it is not a boolean.
        """
        if name not in self:
            return default
        value = self._value(name)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise DocumentError(
                "must be true or false",
                field=self.spelling(name),
                value=_quoted(value),
                remedy="write true or false",
            )
        return value

    def texts(self, name: str) -> tuple[str, ...] | None:
        """Return the list of words under `name`, or None where it is absent or null.

        Raises:
            DocumentError: if it is not a list of strings.
        """
        value = self._value(name)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            raise DocumentError(
                "must be a list of words",
                field=self.spelling(name),
                value=value,
                remedy="write a list of strings",
            )
        return tuple(value)

    def first_text(self, name: str) -> str | None:
        """Return the first word of the list under `name`, None where there is no such list."""
        value = self._value(name)
        first = value[0] if isinstance(value, list | tuple) and value else None
        return first if isinstance(first, str) else None

    def values(self) -> Mapping[str, Any]:
        """Return all fields as they stand there."""
        self.asked.update(f"{self._prefix}{name}" for name in self._values)
        return self._values

    def names(self) -> tuple[str, ...]:
        """Return the names of all fields that are there."""
        return tuple(self.values())

    def is_mapping(self, name: str) -> bool:
        """Return whether a mapping stands under `name`."""
        return isinstance(self._value(name), Mapping)

    def is_list(self, name: str) -> bool:
        """Return whether a list stands under `name`, be it empty."""
        return isinstance(self._value(name), list | tuple)

    def length(self, name: str) -> int:
        """Return how many items the list under `name` has, 0 where it is absent or no list."""
        value = self._value(name)
        return len(value) if isinstance(value, list | tuple) else 0

    def counts(self, name: str) -> tuple[int, ...]:
        """Return the list of whole numbers from 0 under `name`, empty where it is absent or null.

        Raises:
            DocumentError: if it is another list, or none.
        """
        value = self._value(name)
        if value is None:
            return ()
        if not isinstance(value, list | tuple) or not all(map(_is_index, value)):
            raise DocumentError(
                "must be a list of whole numbers from 0",
                field=self.spelling(name),
                value=value,
                remedy="write a list of integers, or leave it out",
            )
        return tuple(value)

    def pairs(self, name: str) -> tuple[tuple[tuple[str, ...], int], ...]:
        """Return the list of pairs under `name`, each a list of words and how often it comes.

        Raises:
            DocumentError: if it is another list, or none.
        """
        value = self._value(name)
        if value is None:
            return ()
        if not isinstance(value, list | tuple) or not all(map(_is_pair, value)):
            raise DocumentError(
                "must be a list of pairs: a list of words, and a whole number",
                field=self.spelling(name),
                value=value,
                remedy="write such pairs, or leave it out",
            )
        return tuple((tuple(words), times) for words, times in value)

    def indices(self, name: str) -> frozenset[int]:
        """Return the list of layer indices under `name`, empty where it is absent or null.

        Raises:
            DocumentError: if it is not a list of whole numbers from 0.
        """
        value = self._value(name)
        if value is None:
            return frozenset()
        if not isinstance(value, list | tuple) or not all(map(_is_index, value)):
            raise DocumentError(
                "must be a list of layer indices from 0",
                field=self.spelling(name),
                value=value,
                remedy="write a list of integers, or leave it out",
            )
        return frozenset(value)

    def _require_agreement(self, alias: str, name: str) -> None:
        first, second = self._values.get(name), self._values.get(alias)
        self.asked.add(f"{self._prefix}{alias}")
        if first is not None and second is not None and first != second:
            raise DocumentError(
                f"contradicts {self._prefix}{name}, which it is another name of",
                field=f"{self._prefix}{alias}",
                value=second,
                remedy="leave one of them out",
            )

    def _value(self, name: str) -> Any:
        return self._values.get(self._seen(name))

    def _seen(self, name: str) -> str:
        """Return how the field is spelled, which is looked at from now on."""
        key = self._key(name)
        self.asked.add(self._prefix + key)
        return key

    def _key(self, name: str) -> str:
        return self._spelling.get(name, name)


def not_read(title: str, paths: Sequence[str]) -> str:
    """Return the line that tells the keys of a foreign file that are passed over."""
    more = len(paths) - _SHOWN_NAMES
    names = ", ".join(paths[:_SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")
    return f"not read of {title}, and not priced: {names}"


def passed_over(title: str, sections: Mapping[str, Sequence[str]]) -> str:
    """Return the line that tells sections none of whose keys count, and the keys where few."""
    shown = [f"{name} ({_keys_shown(keys)})" for name, keys in sections.items()]
    return f"ignored of {title}, as no price depends on it: {', '.join(shown)}"


def _keys_shown(keys: Sequence[str]) -> str:
    return ", ".join(keys) if len(keys) <= _SHOWN_KEYS else f"{len(keys)} keys"


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


def require_at_most(name: str, value: int, *, limit_name: str, limit: int) -> None:
    """Raise if `value` exceeds `limit`.

    Raises:
        DocumentError: naming both fields.
    """
    if value > limit:
        raise DocumentError(
            f"exceeds {limit_name} {limit}",
            field=name,
            value=value,
            remedy=f"use at most {limit}",
        )


def _is_pair(item: object) -> bool:
    if not isinstance(item, list | tuple) or len(item) != 2:
        return False
    words, times = item
    listed = isinstance(words, list | tuple) and all(isinstance(word, str) for word in words)
    return listed and _is_index(times)


def _is_index(item: object) -> bool:
    return isinstance(item, int) and not isinstance(item, bool) and item >= 0


def _quoted(value: object) -> object:
    """Return `value`, text in quotes, so that "4" is not told to be 4."""
    return f'"{value}"' if isinstance(value, str) else value


def _shown(value: int) -> int | str:
    """Return `value`, or its length where Python itself would refuse to write it out."""
    if abs(value) < 10**_SHOWN_DIGITS:
        return value
    return f"a number of {value.bit_length()} bits"
