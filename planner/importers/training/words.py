"""Words: what a training configuration says by the planner's own names, and where it says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from planner.errors import DocumentError
from planner.importers.fields import Fields

_ABSENT = {"", "none", "null", "auto"}


def is_absent(value: object) -> bool:
    """Return whether a value says nothing: null, or a word that stands for it."""
    return value is None or (isinstance(value, str) and value.strip().lower() in _ABSENT)


@dataclass(slots=True, kw_only=True)
class Words:
    """The value of each word, its path in the file, and what was said while reading.

    `assumed` has the framework's own defaults, `fixed` what it always does, and `places` where a
    word would stand.
    """

    title: str
    assumed: Mapping[str, object] = field(default_factory=dict)
    fixed: Mapping[str, object] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    paths: dict[str, str] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    asked: set[str] = field(default_factory=set)

    def take(self, word: str, path: str, value: Any) -> None:
        """Keep what a key says, unless that is nothing.

        Raises:
            DocumentError: if another key says otherwise.
        """
        if is_absent(value):
            return
        if word.endswith("*"):
            self._multiply(word.rstrip("*"), path, value)
            return
        if word in self.values and self.values[word] != value:
            raise DocumentError(
                f"contradicts {self.paths[word]}, which is {self.values[word]}",
                field=path,
                value=value,
                remedy="leave one of them out",
            )
        self.values[word] = value
        self.paths.setdefault(word, path)

    def _multiply(self, word: str, path: str, value: Any) -> None:
        before = self.values.get(word, 1)
        factor = Fields({path: value}).size(path, minimum=-1)
        self.values[word] = -1 if -1 in (before, factor) else before * factor
        self.paths.setdefault(word, path)

    def __contains__(self, word: str) -> bool:
        """Return whether the file says the word."""
        return word in self.values

    def place(self, word: str) -> str:
        """Return the key that says a word, or would."""
        return self.paths.get(word) or self.places.get(word, word)

    def get(self, word: str) -> Any:
        """Return what a word says, else what the framework takes, which is said; or None."""
        self.asked.add(word)
        if word in self.values:
            return self.values[word]
        if word not in self.assumed:
            return self.fixed.get(word)
        value = self.assumed[word]
        line = f"{self.place(word)} is not given: {_shown(value)}, as {self.title} has it"
        if line not in self.said:
            self.said.append(line)
        return value

    def unused(self) -> tuple[str, ...]:
        """Return a line on each key that was never asked for, and so changes nothing here."""
        return tuple(
            f"{self.paths[word]} {_shown(value)} changes nothing beside the other keys"
            for word, value in self.values.items()
            if word not in self.asked and value is not False
        )

    def size(self, word: str, default: int | None = None, *, minimum: int = 1) -> int:
        """Return a whole number; DocumentError if it is none, or is missing without a default."""
        return self._own(word).size(self.place(word), default, minimum=minimum)

    def optional_size(self, word: str, *, minimum: int = 1) -> int | None:
        """Return a whole number, or None where there is none."""
        return None if self.get(word) is None else self.size(word, minimum=minimum)

    def number(self, word: str) -> float | None:
        """Return a number from 0, or None; DocumentError if it is none."""
        value = self.get(word)
        return None if value in (None, 0) else self._own(word).number(self.place(word), 1.0)

    def flag(self, word: str, default: bool = False) -> bool:
        """Return true or false; DocumentError if it is neither."""
        value = self.get(word)
        if value is None:
            return default
        if value in (0, 1):
            return bool(value)
        return self._own(word).flag(self.place(word), default)

    def text(self, word: str) -> str | None:
        """Return a word in small letters, or None where there is none."""
        value = self.get(word)
        return None if value is None else str(value).strip().lower()

    def _own(self, word: str) -> Fields:
        return Fields({self.place(word): self.get(word)})


def _shown(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
