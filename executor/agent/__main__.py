"""`python -m executor.agent`: enrol this node, run its agent, or ask a fleet for a run or a tuning.

Exit status: 0 stopped as asked or done, 1 it cannot go on or a run did not succeed, 2 usage.
"""

from __future__ import annotations

import argparse
import socket
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from planner.extras import exit_without_extras

if __name__ == "__main__":
    exit_without_extras("executor.agent")

from executor.agent.commands import check_template
from executor.agent.configuration import STARTER, AgentConfiguration, read_configuration
from executor.agent.enrolment import Credentials, enrol, read_credentials
from executor.agent.errors import AgentError
from executor.agent.fleet import LOOK_SECONDS, Fleet, read_plan_or_id
from executor.agent.loop import Agent, default_configuration_path
from executor.agent.status import StatusLine
from executor.agent.tunings import TuningRequest, begun, followed
from planner.errors import MeshwrightError
from planner.schema.agent import EnrolmentTokenRequest
from planner.schema.document import parse_fields
from planner.schema.lifecycle import RunState
from planner.schema.run import RunRequest
from planner.schema.tuning import Tuning


def main(arguments: Sequence[str]) -> int:
    """Do what the command line asks for; return the exit status."""
    parsed = _parser().parse_args(list(arguments))
    try:
        if parsed.action == "run" and (parsed.server is None) != (parsed.token is None):
            raise AgentError(
                "go together",
                field="--server and --token",
                remedy="give both to enrol first, or neither where this node is enrolled",
            )
        if parsed.action == "token":
            _print_token(parsed)
        elif parsed.action == "submit":
            return _submit(parsed)
        elif parsed.action == "tune":
            _tune(parsed)
        else:
            _check_platform()
            _enrol(parsed) if parsed.action == "enrol" else _run(parsed)
    except MeshwrightError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - this is a command
        return 1
    return 0


def _enrol(parsed: argparse.Namespace) -> None:
    path: Path = parsed.configuration
    _take_in(parsed)
    given = "" if path == default_configuration_path() else f" --config {path}"
    print(f"now: meshwright agent run{given}")  # noqa: T201


def _take_in(parsed: argparse.Namespace) -> None:
    """Enrol by a one-time token, with a configuration to start from where there is none."""
    path: Path = parsed.configuration
    is_new = not path.exists()
    if is_new:
        _write_starter(path, parsed)
    try:
        configuration, credentials = _enrolled(path, parsed)
    except MeshwrightError:
        if is_new:
            path.unlink()  # so that the next try begins like this one
        raise
    if is_new:
        print(f"wrote {path}: look at it, above all at what it allows to run")  # noqa: T201
    print(f"enrolled as {credentials.agent_id}; its token is in {configuration.token_path}")  # noqa: T201


def _enrolled(path: Path, parsed: argparse.Namespace) -> tuple[AgentConfiguration, Credentials]:
    """Return the configuration at `path`, and the credentials that its server gave.

    Raises:
        AgentError: if they do not fit, or the server refuses.
    """
    configuration = _checked(path)
    _check_server(configuration, parsed)
    return configuration, enrol(configuration, parsed.token)


def _check_server(configuration: AgentConfiguration, parsed: argparse.Namespace) -> None:
    if parsed.server.rstrip("/") != configuration.server.rstrip("/"):
        raise AgentError(
            f"the configuration says {configuration.server}",
            field="--server",
            value=parsed.server,
            remedy=f"correct one of them ({parsed.configuration})",
        )


def _is_enrolled(path: Path) -> bool:
    return path.exists() and read_configuration(path).token_path.exists()


def _run(parsed: argparse.Namespace) -> None:
    if parsed.token is not None and not _is_enrolled(parsed.configuration):
        _take_in(parsed)
    configuration = _checked(parsed.configuration)
    if parsed.server is not None:
        _check_server(configuration, parsed)
    status = StatusLine(configuration.name)
    try:
        Agent(configuration, read_credentials(configuration), status).run()
    finally:
        status.close()


def _print_token(parsed: argparse.Namespace) -> None:
    request = EnrolmentTokenRequest(note=parsed.note)
    made = Fleet.at(parsed.server).enrolment_token(request)
    print(made.token)  # noqa: T201 - this is a command
    until = made.expires_at.isoformat(timespec="minutes")
    print(  # noqa: T201
        f"for one node, until {until}: meshwright agent run --server {parsed.server} --token ...",
        file=sys.stderr,
    )


def _submit(parsed: argparse.Namespace) -> int:
    """Queue a run, and follow it to its end unless told otherwise."""
    fleet = Fleet.at(parsed.on)
    plan = read_plan_or_id(parsed.plan)
    pause = partial(time.sleep, LOOK_SECONDS)
    name = plan if isinstance(plan, str) else fleet.plan_id(plan, pause=pause)
    arguments = dict(_argument(text) for text in parsed.argument)
    request = RunRequest(plan_id=name, command=parsed.command, arguments=arguments)
    run = fleet.run(request)
    if parsed.detach:
        print(run.id)  # noqa: T201 - this is a command
        return 0
    ended = fleet.followed(run, say=partial(print, flush=True), pause=pause)
    return 0 if ended.state is RunState.SUCCEEDED else 1


def _tune(parsed: argparse.Namespace) -> None:
    """Have a fleet tune what stdin says, and print it at its end, unless told otherwise."""
    fields = parse_fields(sys.stdin.buffer.read(), source="stdin")
    tuning = Tuning.from_fields(fields, source="stdin")
    fleet = Fleet.at(parsed.on)
    arguments = dict(_argument(text) for text in parsed.argument)
    request = TuningRequest.of(tuning, command=parsed.command, arguments=arguments)
    found = begun(fleet, request)
    if parsed.detach:
        print(found.id)  # noqa: T201 - this is a command
        return
    say = partial(print, file=sys.stderr, flush=True)
    ended = followed(fleet, found, say=say, pause=partial(time.sleep, LOOK_SECONDS))
    print(ended.model_dump_json())  # noqa: T201 - this is a command


def _argument(text: str) -> tuple[str, str]:
    name, is_given, value = text.partition("=")
    if not is_given:
        raise AgentError(
            "is not NAME=VALUE",
            field="--argument",
            value=text,
            remedy="write e.g. --argument steps=100",
        )
    return name, value


def _checked(path: Path) -> AgentConfiguration:
    configuration = read_configuration(path)
    for name, template in configuration.commands.items():
        check_template(name, template)
    return configuration


def _write_starter(path: Path, parsed: argparse.Namespace) -> None:
    name = parsed.name or socket.gethostname()
    text = STARTER.format(
        server=parsed.server,
        name=name,
        address=_own_address(parsed.server),
        work_folder=path.parent / "agent",
        devices="# count = 2\n",
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _own_address(server: str) -> str:
    """Return the address that this node has towards the server: others likely reach it there."""
    parts = urlsplit(server)
    if parts.hostname is None:
        return "127.0.0.1"
    try:
        kind, _, _, _, address = socket.getaddrinfo(
            parts.hostname, parts.port or 80, type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(kind, socket.SOCK_DGRAM) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"


def _check_platform() -> None:
    if not sys.platform.startswith("linux"):
        raise AgentError(
            "finds and ends a run's processes by Linux's /proc",
            field="platform",
            value=sys.platform,
            remedy="run the agent on Linux",
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="meshwright agent", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    enrolment = actions.add_parser("enrol", help="take this node into a server's fleet")
    token = actions.add_parser("token", help="make a token with which one node may enrol")
    token.add_argument("--server", required=True, metavar="URL")
    token.add_argument("--note", default="", help="for whom it is")
    submission = actions.add_parser("submit", help="have a fleet run a plan")
    submission.add_argument("plan", help="a plan's file, or its name there")
    tuning = actions.add_parser("tune", help="have a fleet tune what stdin says")
    for action in (submission, tuning):
        action.add_argument("--on", required=True, metavar="URL")
        action.add_argument("--command", default="train", help="one that agents allow")
        action.add_argument("--argument", action="append", default=[], metavar="NAME=VALUE")
        action.add_argument("--detach", action="store_true", help="do not wait for its end")
    running = actions.add_parser("run", help="take runs from the server until stopped")
    for action in (enrolment, running):
        action.add_argument("--server", required=action is enrolment, metavar="URL")
        action.add_argument("--token", required=action is enrolment, help="the one-time token")
        action.add_argument("--name", help="default: the host's")
        action.add_argument(
            "--config", dest="configuration", type=Path, default=default_configuration_path(),
            metavar="FILE", help="default: ~/.meshwright/agent.toml",
        )  # fmt: skip
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
