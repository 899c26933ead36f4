"""Commands: a lease's command as the arguments of a process, from this node's own templates."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from executor import variables as names
from executor.agent.configuration import ArgumentRule, CommandTemplate
from executor.agent.errors import AgentError, NotAllowedError
from executor.agent.run_folder import Command, RunFolder
from planner.schema.lease import ArgumentValue, Lease, argument_text

PACKAGE_ROOT = str(Path(__file__).resolve().parents[2])
_LAUNCHER = "{launcher}"
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_.-]*)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Which node of the run this is, how many ranks it starts, and where node 0 listens."""

    node_rank: int
    node_count: int
    local_ranks: int
    master_address: str
    master_port: int
    metrics_name: str = "metrics.jsonl"


def command_of(
    lease: Lease, template: CommandTemplate, place: Place, *, folder: RunFolder, checkpoint: Path
) -> Command:
    """Return the process that a lease means on this node.

    Raises:
        NotAllowedError: if an argument is missing, unknown, or not one that the template allows.
    """
    values = {
        **argument_values(lease, template),
        "python": sys.executable,
        "plan": str(folder.plan_path),
        "report": str(folder.path / "report.json"),
        "checkpoint": str(checkpoint),
        "resume": "1" if lease.resume else "0",
        "run": lease.run_id,
        "attempt": str(lease.attempt),
        "epoch": str(lease.epoch),
        "node_rank": str(place.node_rank),
        "node_count": str(place.node_count),
        "local_ranks": str(place.local_ranks),
        "master_address": place.master_address,
        "master_port": str(place.master_port),
    }
    argv: list[str] = []
    for element in template.argv:
        argv += _launcher(lease, values) if element == _LAUNCHER else [_filled(element, values)]
    variables = {
        names.METRICS_PATH: str(folder.path / place.metrics_name),
        names.REFUSAL_PATH: str(folder.refusal_path),
        names.CHECKPOINT_FOLDER: str(checkpoint),
        names.RESUME: values["resume"],
        names.RUN: lease.run_id,
        names.GRACE_SECONDS: str(template.grace_seconds),
        "PYTHONUNBUFFERED": "1",
        **{name: _filled(value, values) for name, value in template.environment.items()},
    }
    return Command(
        argv=tuple(argv),
        directory=str(Path(template.directory).expanduser())
        if template.directory
        else str(folder.path),
        environment=variables,
        grace_seconds=template.grace_seconds,
    )


def argument_values(lease: Lease, template: CommandTemplate) -> dict[str, str]:
    """Return a value for each argument of the template.

    Raises:
        NotAllowedError: naming the first that this node does not take.
    """
    for name, value in lease.arguments.items():
        if name not in template.arguments:
            known = ", ".join(sorted(template.arguments)) or "none"
            raise NotAllowedError(
                f"is not an argument of the command {lease.command} on this node",
                field=f"arguments.{name}",
                value=argument_text(value),
                remedy=f"known there: {known}",
            )
    return {
        name: _value(name, rule, lease.arguments.get(name, rule.default))
        for name, rule in template.arguments.items()
    }


def _value(name: str, rule: ArgumentRule, value: ArgumentValue | None) -> str:
    if value is None:
        raise NotAllowedError(
            "has no default on this node, and the run gives none",
            field=f"arguments.{name}",
            remedy="give it with the run",
        )
    text = argument_text(value)
    if "\0" in text or re.fullmatch(rule.pattern, text) is None:
        raise NotAllowedError(
            f"does not match {rule.pattern}, which this node asks for",
            field=f"arguments.{name}",
            value=text,
            remedy="give another value, or widen the pattern in the agent's configuration",
        )
    return text


def _launcher(lease: Lease, values: Mapping[str, str]) -> list[str]:
    """Return the start of a command line that launches this node's ranks of the plan."""
    arguments = [
        values["python"], "-m", "executor.launcher", values["plan"], "--report", values["report"],
    ]  # fmt: skip
    if values["node_count"] == "1":
        return arguments
    master = f"{values['master_address']}:{values['master_port']}"
    return [
        *arguments,
        *("--nodes", values["node_count"], "--node-rank", values["node_rank"]),
        *("--local-ranks", values["local_ranks"], "--master", master),
        *("--meeting", f"{lease.run_id}-{lease.epoch}"),
    ]


def _filled(element: str, values: Mapping[str, str]) -> str:
    """Return an element with what its braces name; braces around anything else stay."""

    def value(match: re.Match[str]) -> str:
        return values.get(match[1], match[0])

    return _PLACEHOLDER.sub(value, element)


def check_template(name: str, template: CommandTemplate) -> None:
    """Return if all that a template's braces name is known.

    Raises:
        AgentError: naming the first that is not.
    """
    known = BUILT_IN | set(template.arguments)
    for element in (*template.argv, *template.environment.values()):
        for match in _PLACEHOLDER.finditer(element):
            if match[1] not in known and element != _LAUNCHER:
                raise AgentError(
                    "is neither built in nor one of the command's arguments",
                    field=f"commands.{name}",
                    value=match[0],
                    remedy=f"declare it under [commands.{name}.arguments], or correct it",
                )
    for argument in template.arguments:
        if argument in BUILT_IN:
            raise AgentError(
                "has the name of something built in",
                field=f"commands.{name}.arguments",
                value=argument,
                remedy="call it something else",
            )


BUILT_IN = frozenset(
    {
        "python", "plan", "report", "checkpoint", "resume", "run", "attempt", "epoch",
        "node_rank", "node_count", "local_ranks", "master_address", "master_port",
    }
)  # fmt: skip
