"""`python -m api keys ...`: keys of all projects, at the command line of who runs the service."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from pydantic import BaseModel, ValidationError

from api.caller import DEFAULT_PROJECT, Scope
from api.db import Database
from api.migrate import upgrade_url
from api.schemas import ApiKey, ApiKeyRequest
from api.services.keys import KeyService, operator
from api.settings import read_settings
from planner.schema.document import document_error


def main(arguments: Sequence[str]) -> int:
    """Make, list or revoke keys; the database is the environment's."""
    given = _parser().parse_args(arguments)
    settings = read_settings()
    upgrade_url(settings.database_url)
    database = Database(settings.database_url)
    try:
        _COMMANDS[given.command](KeyService(database), given)
    finally:
        database.close()
    return 0


def _create(keys: KeyService, given: Namespace) -> None:
    scopes = given.scope or [Scope.READ, Scope.PLAN]
    fields = {"name": given.name, "scopes": scopes, "expires_in_days": given.expires_in_days}
    try:
        request = ApiKeyRequest.model_validate(fields)
    except ValidationError as error:
        raise document_error(error, source="key") from None
    made = keys.create(operator(given.project), request)
    if given.json:
        _print_json(made)
        return
    print(made.key)  # noqa: T201 - a command's output
    scopes_text = ", ".join(made.scopes)
    print(  # noqa: T201
        f"{made.prefix} may {scopes_text} in the project {made.project!r}; "
        "the key is shown this once",
        file=sys.stderr,
    )


def _list(keys: KeyService, given: Namespace) -> None:
    found = keys.list_all()
    if given.json:
        _print_json(found)
        return
    print(f"{'PREFIX':<13}{'PROJECT':<20}{'NAME':<24}{'SCOPES':<22}STATE")  # noqa: T201
    for key in found.items:
        scopes = ",".join(key.scopes)
        print(  # noqa: T201
            f"{key.prefix:<13}{key.project:<20}{key.name:<24}{scopes:<22}{_state(key)}"
        )


def _revoke(keys: KeyService, given: Namespace) -> None:
    revoked = keys.revoke_by_name(given.key)
    if given.json:
        _print_json(revoked)
        return
    print(f"{revoked.prefix} ({revoked.name}) lets nobody in any more")  # noqa: T201


_COMMANDS = {"create": _create, "list": _list, "revoke": _revoke}


def _state(key: ApiKey) -> str:
    if key.revoked_at is not None:
        return f"revoked {key.revoked_at:%Y-%m-%d}"
    return "holds" if key.expires_at is None else f"until {key.expires_at:%Y-%m-%d}"


def _print_json(document: BaseModel) -> None:
    json.dump(document.model_dump(mode="json"), sys.stdout, indent=2)
    sys.stdout.write("\n")


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="meshwright keys")
    commands = parser.add_subparsers(dest="command", required=True)
    create = commands.add_parser("create")
    create.add_argument("--name", required=True)
    create.add_argument("--project", default=DEFAULT_PROJECT)
    create.add_argument("--scope", action="append", choices=[scope.value for scope in Scope])
    create.add_argument("--expires-in-days", type=int)
    revoke = commands.add_parser("revoke")
    revoke.add_argument("key")
    for command in (create, revoke, commands.add_parser("list")):
        command.add_argument("--json", action="store_true")
    return parser
