"""Pages of an administrator: the keys of the project, its audit log, and the projects."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from api.caller import Caller, Scope
from api.dashboard.key_form import (
    SCOPE_MEANINGS,
    KeyForm,
    ProjectForm,
    read_key_form,
    read_project_form,
)
from api.dashboard.page_route import PageRoute
from api.dashboard.rendering import page, see
from api.deps import Administrator, AuditLog, KeyId, Keys, Projects
from api.errors import ProjectExistsError
from api.project_schemas import ProjectQuery
from api.schemas import ApiKey, AuditQuery, NewApiKey, WirePart
from api.services.keys import KeyService
from api.services.projects import ProjectService, oversees

_UNPROCESSABLE = 422
_PAGE_LENGTH = 50

router = APIRouter(route_class=PageRoute, include_in_schema=False)


class LogQuery(WirePart):
    """What the address of the audit log says; an empty action matches all."""

    model_config = ConfigDict(extra="ignore")

    action: Annotated[str, Field(pattern=r"^[a-z_.-]{0,64}$")] = ""
    cursor: Annotated[str | None, Field(max_length=64)] = None

    def audit_query(self) -> AuditQuery:
        """Return which entries are wanted."""
        return AuditQuery(action=self.action or None, cursor=self.cursor, limit=_PAGE_LENGTH)


@router.get("/keys")
def show_keys(caller: Administrator, keys: Keys) -> Response:
    """Show the keys of the project, and the form that makes one."""
    return _keys_page(caller, keys)


@router.post("/keys")
async def make_key(caller: Administrator, request: Request, keys: Keys) -> Response:
    """Show a new key, this once; or the form again with what is wrong."""
    form = read_key_form(await request.form())
    if form.request is None:
        return await run_in_threadpool(_keys_page, caller, keys, form=form, status=_UNPROCESSABLE)
    made = await run_in_threadpool(keys.create, caller, form.request)
    response = await run_in_threadpool(_keys_page, caller, keys, made=made)
    response.headers["Cache-Control"] = "no-store"
    return response


@router.post("/keys/{key_id}/revoke")
def revoke_key(caller: Administrator, keys: Keys, key_id: KeyId) -> Response:
    """Have a key let nobody in any more, and show the others."""
    keys.revoke(caller, key_id)
    return see("/keys")


@router.get("/audit")
def show_audit_log(
    caller: Administrator, audit: AuditLog, asked: Annotated[LogQuery, Query()]
) -> Response:
    """Show who did what in the project, the newest first."""
    found = audit.list(caller, asked.audit_query())
    return page("audit.html", found=found, asked=asked, caller=caller)


@router.get("/projects")
def show_projects(
    caller: Administrator,
    projects: Projects,
    cursor: Annotated[str | None, Query(max_length=128)] = None,
) -> Response:
    """Show the projects that the caller may know of, and who has keys of them."""
    return _projects_page(caller, projects, cursor=cursor)


@router.post("/projects")
async def make_project(caller: Administrator, request: Request, projects: Projects) -> Response:
    """Make a project and show its first key, this once; or the form again with what is wrong."""
    form = read_project_form(await request.form())
    return await run_in_threadpool(_project_made, caller, projects, form)


def _project_made(caller: Caller, projects: ProjectService, form: ProjectForm) -> Response:
    if form.request is None:
        return _projects_page(caller, projects, form=form, status=_UNPROCESSABLE)
    try:
        made = projects.create(caller, form.request).first_key
    except ProjectExistsError as error:
        again = replace(form, complaints={"name": f"{error.problem}: {error.remedy}"})
        return _projects_page(caller, projects, form=again, status=_UNPROCESSABLE)
    response = _projects_page(caller, projects, made=made)
    response.headers["Cache-Control"] = "no-store"
    return response


def _projects_page(
    caller: Caller,
    projects: ProjectService,
    *,
    form: ProjectForm | None = None,
    made: NewApiKey | None = None,
    cursor: str | None = None,
    status: int = 200,
) -> Response:
    return page(
        "projects.html",
        status=status,
        found=projects.list(caller, ProjectQuery(cursor=cursor, limit=_PAGE_LENGTH)),
        cursor=cursor,
        key_state=key_state,
        oversees=oversees(caller),
        caller=caller,
        form=form or ProjectForm(),
        made=made,
    )


def _keys_page(
    caller: Caller,
    keys: KeyService,
    *,
    form: KeyForm | None = None,
    made: NewApiKey | None = None,
    status: int = 200,
) -> Response:
    newest_first = reversed(keys.of_project(caller))
    return page(
        "keys.html",
        status=status,
        keys=sorted(newest_first, key=lambda key: key_state(key)[1] == "bad"),
        key_state=key_state,
        caller=caller,
        form=form or KeyForm(),
        made=made,
        scopes=[(scope, SCOPE_MEANINGS[scope]) for scope in Scope if scope in caller.scopes],
    )


def key_state(key: ApiKey) -> tuple[str, str]:
    """Return whether the key lets its holder in, in words, and the kind of its badge."""
    if key.revoked_at is not None:
        return "revoked", "bad"
    if key.expires_at is not None and key.expires_at <= datetime.now(UTC):
        return "expired", "bad"
    return "active", "good"
