"""Breach: a broken rule of legality."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """One broken rule, in the words of an error message."""

    field: str
    value: object
    problem: str
    remedy: str
