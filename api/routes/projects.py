"""/v1/projects."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from api.deps import Administrator, Projects
from api.problems import documented
from api.project_schemas import NewProject, ProjectPage, ProjectQuery, ProjectRequest
from api.routes.documents import DocumentRoute

router = APIRouter(prefix="/v1/projects", tags=["projects"], route_class=DocumentRoute)


@router.get("", responses=documented())
def list_projects(
    caller: Administrator, projects: Projects, query: Annotated[ProjectQuery, Query()]
) -> ProjectPage:
    """List projects and who holds keys of them: your own; all, for those of `default`."""
    return projects.list(caller, query)


@router.post("", status_code=201, responses=documented(409, 413, 415))
def create_project(
    caller: Administrator, projects: Projects, request: ProjectRequest
) -> NewProject:
    """Make a project and its first key, which only this answer shows; for those of `default`."""
    return projects.create(caller, request)
