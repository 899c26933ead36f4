"""Projects: which there are, who holds keys of them, and a new one with its first key.

An administrator sees its own project. One of the project `default`, which the service begins with,
sees all and makes new ones; what is in them stays theirs, and nobody gets a key of a project that
others are in already.
"""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy.exc import IntegrityError

from api.caller import DEFAULT_PROJECT, Caller
from api.cursors import identifier, identifier_cursor
from api.db import Database
from api.errors import ForbiddenError, ProjectExistsError
from api.project_schemas import NewProject, Project, ProjectPage, ProjectQuery, ProjectRequest
from api.repositories.audit import AuditRepository
from api.repositories.keys import KeyRepository, ProjectRepository
from api.schemas import ApiKeyRequest
from api.services.keys import create_key, shown_key


def oversees(caller: Caller) -> bool:
    """Return whether an administrator sees all projects and may make new ones."""
    return caller.project_id == DEFAULT_PROJECT


class ProjectService:
    """What an administrator can ask of projects."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def list(self, caller: Caller, query: ProjectQuery) -> ProjectPage:
        """Return a page of the projects that the administrator `caller` may know of, by name.

        Raises:
            InputError: if the cursor is none of ours.
        """
        with self._database.reading() as session:
            rows = ProjectRepository(session).page(
                only=None if oversees(caller) else caller.project_id,
                after=None if query.cursor is None else identifier(query.cursor),
                limit=query.limit + 1,
            )
            page = rows[: query.limit]
            names = [row.id for row in page]
            keys = [shown_key(row) for row in KeyRepository(session).all(project_ids=names)]
        items = tuple(
            Project(
                name=row.id,
                created_at=row.created_at,
                keys=tuple(key for key in keys if key.project == row.id),
            )
            for row in page
        )
        more = identifier_cursor(names[-1]) if len(rows) > query.limit else None
        return ProjectPage(items=items, next_cursor=more)

    def create(self, caller: Caller, request: ProjectRequest) -> NewProject:
        """Make a project, and the key that lets its holder administer it, both or neither.

        The key may do there what the caller may do in its own project.

        Raises:
            ForbiddenError: if the caller is no administrator of the project `default`.
            ProjectExistsError: if one has that name already.
        """
        if not oversees(caller):
            raise ForbiddenError(f"admin of the project {DEFAULT_PROJECT}", caller=caller.name)
        theirs = Caller(
            project_id=request.name, name=caller.name, scopes=caller.scopes, key_id=None
        )
        first = ApiKeyRequest(name=request.holder, scopes=tuple(sorted(caller.scopes)))
        now = datetime.now(UTC)
        try:
            with self._database.writing() as session:
                ProjectRepository(session).add(request.name, at=now)
                AuditRepository(session).add(caller, action="project.create", subject=request.name)
                key = create_key(session, theirs, first)
        except IntegrityError:
            raise ProjectExistsError(request.name) from None
        return NewProject(name=request.name, created_at=now, first_key=key)
