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

    @property
    def owner(self) -> str | None:
        """Return in whose name what it asks for is kept; nobody's where no key was needed."""
        return None if self.key_id is None else self.name

    def may_delete(self, owner: str | None) -> bool:
        """Return whether it may delete what belongs to `owner`: its own, nobody's, or any."""
        return Scope.ADMIN in self.scopes or owner in {None, self.owner}
