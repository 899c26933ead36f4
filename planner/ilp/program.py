"""Program: a mixed-integer linear program as plain data, known to no solver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Sense = Literal["<=", ">=", "=="]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A column: its name, bounds (None = unbounded above), and whether it is whole."""

    name: str
    lower: float = 0.0
    upper: float | None = None
    is_integer: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A constraint: sum of coefficient x variable, by the variable's index, against a number."""

    name: str
    terms: tuple[tuple[int, float], ...]
    sense: Sense
    bound: float


@dataclass(slots=True)
class Program:
    """Minimise the objective over the variables subject to the rows, which have names."""

    variables: list[Variable] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    objective: list[tuple[int, float]] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)

    def add(self, variable: Variable) -> int:
        """Return the index of `variable`, now part of the program."""
        self.variables.append(variable)
        return len(self.variables) - 1

    def violation(self, values: Sequence[float]) -> float:
        """Return by how much values miss the row that they miss by most, as a share of its size."""
        return max((_missed(row, values) for row in self.rows), default=0.0)

    def require(
        self, name: str, terms: list[tuple[int, float]], sense: Sense, bound: float
    ) -> None:
        """Add a row; `places` says where it is."""
        self.places[name] = len(self.rows)
        self.rows.append(Row(name=name, terms=tuple(terms), sense=sense, bound=bound))


def _missed(row: Row, values: Sequence[float]) -> float:
    terms = [coefficient * values[column] for column, coefficient in row.terms]
    over = sum(terms) - row.bound
    missed = {"<=": over, ">=": -over, "==": abs(over)}[row.sense]
    return missed / max(abs(row.bound), *map(abs, terms), 1.0)
