"""Projects: which there are, who holds keys of them, and a new one with its first key.

An administrator sees its own project. One of the project `default`, which the service begins with,
sees all and makes new ones; what is in them stays theirs, and nobody gets a key of a project that
others are in already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy.exc import IntegrityError

from api.caller import DEFAULT_PROJECT, Caller
from api.db import Database
from api.errors import ForbiddenError
from api.repositories.audit import AuditRepository
from api.repositories.keys import KeyRepository, ProjectRepository
from api.schemas import ApiKey, ApiKeyRequest, NewApiKey
from api.services.keys import KeyService, shown_key
from planner.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A project and the keys that were made for it, the oldest first."""

    name: str
    created_at: datetime
    keys: tuple[ApiKey, ...]


def oversees(caller: Caller) -> bool:
    """Return whether an administrator sees all projects and may make new ones."""
    return caller.project_id == DEFAULT_PROJECT


class ProjectService:
    """What an administrator can ask of projects."""

    def __init__(self, database: Database, keys: KeyService) -> None:
        self._database = database
        self._keys = keys

    def list(self, caller: Caller) -> Sequence[Project]:
        """Return the projects that the administrator `caller` may know of, by name."""
        with self._database.reading() as session:
            rows = ProjectRepository(session).all()
            keys = [shown_key(row) for row in KeyRepository(session).all()]
        return [
            Project(
                name=row.id,
                created_at=row.created_at,
                keys=tuple(key for key in keys if key.project == row.id),
            )
            for row in rows
            if oversees(caller) or row.id == caller.project_id
        ]

    def create(self, caller: Caller, name: str, *, holder: str) -> NewApiKey:
        """Make the project `name`, and the key that lets `holder` administer it.

        The key may do there what the caller may do in its own project.

        Raises:
            ForbiddenError: if the caller is no administrator of the project `default`.
            InputError: if no project can have that name, or one has it already.
        """
        if not oversees(caller):
            raise ForbiddenError(f"admin of the project {DEFAULT_PROJECT}", caller=caller.name)
        theirs = Caller(project_id=name, name=caller.name, scopes=caller.scopes, key_id=None)
        request = ApiKeyRequest(name=holder, scopes=tuple(sorted(caller.scopes)))
        try:
            with self._database.writing() as session:
                ProjectRepository(session).add(name, at=datetime.now(UTC))
                AuditRepository(session).add(caller, action="project.create", subject=name)
        except IntegrityError:
            raise InputError(
                "is the name of a project that exists",
                field="project",
                value=name,
                remedy="choose another name, or ask an administrator of that project for a key",
            ) from None
        return self._keys.create(theirs, request)
