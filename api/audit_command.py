"""`python -m api audit`: who did what, at the command line of who runs the service."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections.abc import Sequence

from pydantic import ValidationError

from api.caller import DEFAULT_PROJECT
from api.db import Database
from api.migrate import upgrade_url
from api.schemas import AuditEvent, AuditQuery
from api.services.audit import AuditService
from api.services.keys import operator
from api.settings import read_settings
from planner.schema.document import document_error


def main(arguments: Sequence[str]) -> int:
    """Print a page of a project's audit log, the newest entry first."""
    given = _parser().parse_args(arguments)
    settings = read_settings()
    try:
        query = AuditQuery(action=given.action, limit=given.limit, cursor=given.cursor)
    except ValidationError as error:
        raise document_error(error, source="audit") from None
    caller = operator(given.project)
    upgrade_url(settings.database_url)
    database = Database(settings.database_url)
    try:
        page = AuditService(database).list(caller, query)
    finally:
        database.close()
    if given.json:
        json.dump(page.model_dump(mode="json"), sys.stdout, indent=2)
        sys.stdout.write("\n")
        return 0
    print(f"{'AT':<21}{'WHO':<20}{'ACTION':<20}WHAT")  # noqa: T201 - a command's output
    for event in page.items:
        print(_line(event))  # noqa: T201
    if page.next_cursor is not None:
        print(f"older ones: --cursor {page.next_cursor}", file=sys.stderr)  # noqa: T201
    return 0


def _line(event: AuditEvent) -> str:
    details = " ".join(f"{name}={value}" for name, value in event.details.items())
    return (
        f"{event.at:%Y-%m-%d %H:%M:%S}  {event.actor:<18}  {event.action:<18}  "
        f"{event.subject} {details}"
    ).rstrip()


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="meshwright audit")
    parser.add_argument("--project", default=DEFAULT_PROJECT)
    parser.add_argument("--action")
    parser.add_argument("--limit", type=int, default=20)
    parser.add_argument("--cursor")
    parser.add_argument("--json", action="store_true")
    return parser
