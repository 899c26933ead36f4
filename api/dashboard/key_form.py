"""The forms that make a key or a project: what was typed, and what is wrong, field by field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import ValidationError
from starlette.datastructures import FormData

from api.caller import Scope
from api.project_schemas import ProjectRequest
from api.schemas import ApiKeyRequest

SCOPE_MEANINGS: Mapping[Scope, str] = {
    Scope.READ: "see plans, runs and agents",
    Scope.PLAN: "ask for plans and analyses, name plans, delete one's own",
    Scope.RUN: "start and cancel runs",
    Scope.ADMIN: "create and revoke keys and agents, delete any plan, read the audit log",
}
_RULES = {
    "name": "must be 1 to 200 printable characters: say who or what will hold the key",
    "scopes": "must be at least one: tick what the holder may do",
    "expires_in_days": "must be a whole number from 1 to 3,650, or empty to never expire",
}
_PROJECT_RULES = {
    "name": "must be 1 to 64 of a-z, 0-9, '.', '_' and '-', beginning with one of a-z, 0-9",
    "holder": _RULES["name"],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyForm:
    """`request` is there if nothing is wrong; `complaints` are by field."""

    name: str = ""
    scopes: frozenset[str] = frozenset({Scope.READ, Scope.PLAN})
    expires_in_days: str = ""
    request: ApiKeyRequest | None = None
    complaints: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectForm:
    """A new project and who will administer it: as `KeyForm`, of a project."""

    project: str = ""
    holder: str = ""
    request: ProjectRequest | None = None
    complaints: Mapping[str, str] = field(default_factory=dict)


def read_project_form(form: FormData) -> ProjectForm:
    """Return what the form asks for, or what must be corrected in it."""
    project, holder = (str(form.get(name, "")).strip() for name in ("project", "holder"))
    request, complaints = None, {}
    try:
        request = ProjectRequest(name=project, holder=holder)
    except ValidationError as error:
        wrong = {str(each["loc"][0]) for each in error.errors()}
        complaints = {each: rule for each, rule in _PROJECT_RULES.items() if each in wrong}
    return ProjectForm(project=project, holder=holder, request=request, complaints=complaints)


def read_key_form(form: FormData) -> KeyForm:
    """Return what the form asks for, or what must be corrected in it."""
    name = str(form.get("name", "")).strip()
    scopes = [str(scope) for scope in form.getlist("scopes")]
    days = str(form.get("expires_in_days", "")).strip()
    request, complaints = None, {}
    try:
        request = ApiKeyRequest.model_validate(
            {"name": name, "scopes": scopes, "expires_in_days": _days(days)}
        )
    except ValidationError as error:
        wrong = {str(each["loc"][0]) for each in error.errors()}
        complaints = {each: rule for each, rule in _RULES.items() if each in wrong}
    return KeyForm(
        name=name,
        scopes=frozenset(scopes),
        expires_in_days=days,
        request=request,
        complaints=complaints,
    )


def _days(text: str) -> int | str | None:
    """Return a number where the text is one; what is none is left for the request to refuse."""
    if not text:
        return None
    return int(text) if text.isdecimal() and len(text) < 10 else text
