"""Arguments of a run, held against what agents say that their commands accept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Annotated

from pydantic import StringConstraints, TypeAdapter, ValidationError
from pydantic_core import SchemaError

from planner.errors import InputError
from planner.schema.agent import AgentReport, CommandArgument
from planner.schema.lease import Arguments, argument_text

_REMEMBERED_PATTERNS = 1024


def check_arguments(command: str, arguments: Arguments, reports: Iterable[AgentReport]) -> None:
    """Refuse arguments that every agent with the command would refuse.

    Agents of earlier versions do not say what they accept: while one has the command, nothing is
    refused here. Nor is anything where no agent has it yet.

    Raises:
        InputError: naming the first argument that is missing, unknown or of a wrong form.
    """
    with_command = [report for report in reports if command in report.commands]
    accepted = [report.arguments.get(command) for report in with_command]
    found = [None if rules is None else _complaint(command, arguments, rules) for rules in accepted]
    if found and found[0] is not None and None not in found:
        raise found[0]


def _complaint(
    command: str, arguments: Arguments, rules: Mapping[str, CommandArgument]
) -> InputError | None:
    """Return what is wrong with the arguments by the rules of one agent, if anything is."""
    for name, value in arguments.items():
        text = argument_text(value)
        if name not in rules:
            return InputError(
                f"is not an argument of the command {command}",
                field=f"arguments.{name}",
                value=text,
                remedy=f"leave it out; known: {', '.join(sorted(rules)) or 'none'}",
            )
        if not _matches(rules[name].pattern, text):
            return InputError(
                f"does not match {rules[name].pattern}, which the agents ask for",
                field=f"arguments.{name}",
                value=text,
                remedy="give another value, or widen the pattern in the agents' configuration",
            )
    for name in sorted(set(rules) - set(arguments)):
        if rules[name].required:
            return InputError(
                f"is missing: the command {command} has no default for it",
                field=f"arguments.{name}",
                remedy=f"give a value that matches {rules[name].pattern}",
            )
    return None


def _matches(pattern: str, text: str) -> bool:
    """Return whether all of `text` matches, as far as can be told here."""
    if "\0" in text:
        return False
    matcher = _matcher(pattern)
    if matcher is None:
        return True
    try:
        matcher.validate_python(text)
    except ValidationError:
        return False
    return True


@lru_cache(maxsize=_REMEMBERED_PATTERNS)
def _matcher(pattern: str) -> TypeAdapter[str] | None:
    """Return what matches an agent's pattern in linear time; nothing for what takes longer.

    Patterns are Python's, and come from other machines: one that looks around or back could hold a
    thread for hours. Those are left to the agent.
    """
    whole = Annotated[str, StringConstraints(pattern=rf"\A(?:{pattern})\z")]
    try:
        return TypeAdapter(whole)
    except SchemaError:
        return None
