"""`meshwright serve` and `meshwright db upgrade`: the service, in its own process."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from planner.cli.run import become_module

database = typer.Typer(help="The service's database.", no_args_is_help=True)

DatabaseOption = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        metavar="URL",
        help="Overrides MESHWRIGHT_DATABASE_URL, e.g. sqlite:///x.db",
    ),
]


def serve(
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on.")] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=1, max=65535, help="Port to listen on.")
    ] = None,
    database_url: DatabaseOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Log in JSON, one object a line, on stderr.")
    ] = False,
) -> None:
    """Serve the REST interface and the dashboard."""
    set_environment(
        MESHWRIGHT_HOST=host,
        MESHWRIGHT_PORT=None if port is None else str(port),
        MESHWRIGHT_DATABASE_URL=database_url,
        MESHWRIGHT_LOG_FORMAT="json" if as_json else None,
    )
    become_module("api", [], command="serve")


@database.callback()
def _database() -> None:
    pass


@database.command("upgrade")
def upgrade(database_url: DatabaseOption = None) -> None:
    """Bring the database to the newest schema."""
    set_environment(MESHWRIGHT_DATABASE_URL=database_url)
    become_module("api", ["upgrade"], command="db upgrade")


def set_environment(**values: str | None) -> None:
    """Set the variables that have a value."""
    os.environ.update({name: value for name, value in values.items() if value is not None})
