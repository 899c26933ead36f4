"""Who asks: a person or a program of one project, and what it may do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

DEFAULT_PROJECT = "default"


class Scope(StrEnum):
    """What a key allows. None implies another."""

    READ = "read"
    PLAN = "plan"
    RUN = "run"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who a request comes from; `key_id` is null where no key was needed."""

    project_id: str
    name: str
    scopes: frozenset[Scope]
    key_id: str | None
