"""Projects as they go over the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import ConfigDict, Field

from api.schemas import ApiKey, HolderName, NewApiKey, WirePart

PROJECT_PATTERN = r"[a-z0-9][a-z0-9._-]{0,63}"


class ProjectRequest(WirePart):
    """A project to be made; `holder` will hold its first key, which may do there what yours may."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "vision", "holder": "Ada, of the vision team"}]}
    )

    name: Annotated[str, Field(pattern=f"^{PROJECT_PATTERN}$")]
    holder: HolderName


class ProjectQuery(WirePart):
    """Which projects to list."""

    cursor: Annotated[str | None, Field(max_length=128)] = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20


class Project(WirePart):
    """A project and all keys that were made for it, the oldest first."""

    name: str
    created_at: datetime
    keys: tuple[ApiKey, ...]


class NewProject(WirePart):
    """A project that was just made; nobody can read its first key a second time."""

    name: str
    created_at: datetime
    first_key: NewApiKey


class ProjectPage(WirePart):
    """Some projects, by name; `next_cursor` asks for the ones after them."""

    items: tuple[Project, ...]
    next_cursor: str | None
