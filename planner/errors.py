"""The planner's error tree. Every message names the field, the value and the remedy.

MeshwrightError
├── InputError            what the user gave is wrong; the user can correct it
│   ├── DocumentError     a file or request body cannot be read as the document it should be
│   ├── UnsupportedModelError   the model is well-formed, but of a kind we cannot price
│   ├── IllegalStrategyError    a strategy breaks a rule of the model, cluster or stack
│   └── MissingExtraError       what was asked for needs an extra that is not installed
├── SolverError           the solver died or answered nonsense
├── SolveError            a task of a pool that gave no answer
│   ├── SolverDiedError       its process died
│   ├── SolveTimeLimitError   it ran past its limit
│   ├── SolveCancelledError   somebody cancelled it
│   └── DaskLostError         the Dask scheduler that it was given to is gone
└── VerificationError     a plan does not survive its own recomputation (a bug of ours)
"""

from __future__ import annotations

from typing import Any

_VALUE_LENGTH_LIMIT = 120
_FIELD_LENGTH_LIMIT = 200
_PROBLEM_LENGTH_LIMIT = 400


def shorten(value: object) -> str:
    """Return `value` as text fit for one line of an error message.

    What cannot be printed (control characters, lone surrogates, marks that turn the direction of
    writing) is escaped: it must neither break nor forge what a terminal or a log shows.
    """
    return _cut(printable(value if isinstance(value, str) else repr(value)), _VALUE_LENGTH_LIMIT)


def printable(text: str) -> str:
    """Return `text` with runs of white space as one space and the unprintable escaped."""
    words = " ".join(text.split())
    if words.isprintable():
        return words
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in words)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


class MeshwrightError(Exception):
    """Anything that this package raises on purpose."""


class InputError(MeshwrightError):
    """What the user gave is wrong: which field, what value, what to do about it."""

    def __init__(self, problem: str, *, field: str, value: object = None, remedy: str) -> None:
        self.problem = _cut(printable(problem), _PROBLEM_LENGTH_LIMIT)
        self.field = _cut(printable(field) or repr(field), _FIELD_LENGTH_LIMIT)
        self.value = value
        self.remedy = printable(remedy)
        shown = "" if value is None else f" (got {shorten(value)})"
        super().__init__(f"{self.field}: {self.problem}{shown}; {self.remedy}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how to restore the error in another process."""
        facts = {"field": self.field, "value": self.value, "remedy": self.remedy}
        return _restored, (type(self), self.problem, facts)


def _restored(kind: type[InputError], problem: str, facts: dict[str, Any]) -> InputError:
    error = kind.__new__(kind)
    InputError.__init__(error, problem, **facts)
    return error


class DocumentError(InputError):
    """A file or request body cannot be read as the document it should be."""


class UnsupportedModelError(InputError):
    """The model description is well-formed, but of a kind that cannot be priced."""


class IllegalStrategyError(InputError):
    """A strategy breaks a rule of the model, the cluster or the software stack."""


class MissingExtraError(InputError, ImportError):
    """What was asked for needs an extra of the distribution that is not installed."""


class SolverError(MeshwrightError):
    """The solver died or gave an answer that cannot be right."""


class SolveError(MeshwrightError):
    """A task of a pool ended without an answer."""


class SolverDiedError(SolveError):
    """Its process died in the middle."""


class SolveTimeLimitError(SolveError):
    """It ran past its limit and was ended."""


class SolveCancelledError(SolveError):
    """It was ended because somebody asked for it."""


class DaskLostError(SolveError):
    """The Dask scheduler cannot be reached, or was lost on the way."""


class VerificationError(MeshwrightError):
    """A plan does not survive its own recomputation."""
