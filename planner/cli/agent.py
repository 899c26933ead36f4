"""`meshwright agent`: a node's agent, in its own process, which does not load torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.run import become_module

agent = typer.Typer(help="This node's agent: takes runs from a server.", no_args_is_help=True)

ConfigurationOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Default: ~/.meshwright/agent.toml."),
]
NameOption = Annotated[
    str | None, typer.Option("--name", help="What to call this node; default its host name.")
]


@agent.callback()
def _agent() -> None:
    pass


@agent.command("enrol")
def enrol(
    server: Annotated[
        str, typer.Option("--server", metavar="URL", help="Where `meshwright serve` listens.")
    ],
    token: Annotated[
        str, typer.Option("--token", help="The one-time token that an administrator made.")
    ],
    name: NameOption = None,
    config: ConfigurationOption = None,
) -> None:
    """Enrol this node in a server's fleet; writes a configuration to start from."""
    arguments = ["enrol", "--server", server, "--token", token]
    if name is not None:
        arguments += ["--name", name]
    become_module("executor.agent", [*arguments, *_configuration(config)], command="agent enrol")


@agent.command("token")
def token(
    server: Annotated[
        str, typer.Option("--server", metavar="URL", help="Where `meshwright serve` listens.")
    ],
    note: Annotated[
        str, typer.Option("--note", help="Note for the audit log, such as the node's name.")
    ] = "",
) -> None:
    """Make a token with which one node may enrol, with the key in MESHWRIGHT_KEY (scope admin)."""
    arguments = ["token", "--server", server, "--note", note]
    become_module("executor.agent", arguments, command="agent token")


@agent.command("run")
def run(
    server: Annotated[
        str | None,
        typer.Option(
            "--server", metavar="URL", help="Enrol with this server first; needs --token."
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option("--token", help="A one-time token; not used where this node is enrolled."),
    ] = None,
    name: NameOption = None,
    config: ConfigurationOption = None,
) -> None:
    """Take runs from the server, one after the other, until stopped."""
    given = {"--server": server, "--token": token, "--name": name}
    arguments = [word for option, value in given.items() if value for word in (option, value)]
    become_module(
        "executor.agent", ["run", *arguments, *_configuration(config)], command="agent run"
    )


def _configuration(path: Path | None) -> list[str]:
    return [] if path is None else ["--config", str(path)]
