"""`meshwright keys` and `meshwright audit`: who may use the service, and who did what.

Both work where its database is.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from planner.cli.options import JsonOption
from planner.cli.run import become_module
from planner.cli.service import DatabaseOption, set_environment

keys = typer.Typer(help="The service's API keys.", no_args_is_help=True)


class KeyScope(StrEnum):
    """What a key allows."""

    READ = "read"
    PLAN = "plan"
    RUN = "run"
    ADMIN = "admin"


@keys.command("create")
def create(
    name: Annotated[str, typer.Option("--name", help="Whom or what the key is for.")],
    project: Annotated[
        str, typer.Option("--project", help="The project of the key; created if new.")
    ] = "default",
    scope: Annotated[
        list[KeyScope] | None,
        typer.Option(
            "--scope", help="A scope of the key; may be repeated. Default: read and plan."
        ),
    ] = None,
    expires_in_days: Annotated[
        int | None, typer.Option("--expires-in-days", min=1, max=3650, metavar="N")
    ] = None,
    database_url: DatabaseOption = None,
    json: JsonOption = False,
) -> None:
    """Create a key and print it; it is shown only once."""
    arguments = ["create", "--name", name, "--project", project]
    for allowed in scope or []:
        arguments += ["--scope", allowed.value]
    if expires_in_days is not None:
        arguments += ["--expires-in-days", str(expires_in_days)]
    _become_command(arguments, database_url, as_json=json)


@keys.command("list")
def list_keys(database_url: DatabaseOption = None, json: JsonOption = False) -> None:
    """List the keys of all projects."""
    _become_command(["list"], database_url, as_json=json)


@keys.command("revoke")
def revoke(
    key: Annotated[str, typer.Argument(metavar="KEY", help="Its prefix (mw_...) or its id.")],
    database_url: DatabaseOption = None,
    json: JsonOption = False,
) -> None:
    """Revoke a key."""
    _become_command(["revoke", key], database_url, as_json=json)


def audit(
    project: Annotated[
        str, typer.Option("--project", help="The project whose log to show.")
    ] = "default",
    action: Annotated[
        str | None, typer.Option("--action", help="Show only this kind of entry, e.g. key.create.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100, metavar="N")] = 20,
    cursor: Annotated[
        str | None, typer.Option("--cursor", help="Where an earlier page ended.")
    ] = None,
    database_url: DatabaseOption = None,
    json: JsonOption = False,
) -> None:
    """List who did what in a project of the service, the newest first."""
    arguments = ["--project", project, "--limit", str(limit)]
    if action is not None:
        arguments += ["--action", action]
    if cursor is not None:
        arguments.append(f"--cursor={cursor}")  # it may begin with a dash
    set_environment(MESHWRIGHT_DATABASE_URL=database_url)
    words = ["audit", *arguments, *(["--json"] if json else [])]
    become_module("api", words, command="audit")


def _become_command(arguments: list[str], database_url: str | None, *, as_json: bool) -> None:
    set_environment(MESHWRIGHT_DATABASE_URL=database_url)
    words = ["keys", *arguments, *(["--json"] if as_json else [])]
    become_module("api", words, command=f"keys {arguments[0]}")
