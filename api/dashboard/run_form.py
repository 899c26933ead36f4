"""The form that starts a run: which command, with which arguments, and what to do when it fails."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import ConfigDict, Field, ValidationError

from api.schemas import WirePart
from planner.errors import InputError
from planner.schema.agent import CommandName
from planner.schema.document import Part, document_error
from planner.schema.run import RunRequest

Request = TypeVar("Request", bound=Part)


class RunForm(WirePart):
    """What was typed: arguments are `name=value`, one a line."""

    model_config = ConfigDict(extra="ignore")

    command: CommandName = "train"
    arguments: Annotated[str, Field(max_length=20_000)] = ""
    restart_limit: Annotated[int, Field(ge=0, le=1_000_000)] = 3
    replan: str = ""


def run_request(plan_id: str, form: RunForm) -> RunRequest:
    """Return the request that the form spells.

    Raises:
        InputError: if a line of the arguments is no `name=value`, or a field is not as it must be.
    """
    fields = {
        "plan_id": plan_id,
        "command": form.command,
        "arguments": arguments_of(form.arguments),
        "restart_limit": form.restart_limit,
        "replan": bool(form.replan),
    }
    return spelled(RunRequest, fields)


def spelled(kind: type[Request], fields: Mapping[str, Any]) -> Request:
    """Return the request with the fields that a form spells.

    Raises:
        DocumentError: naming the first bad field, its value and the remedy.
    """
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise document_error(error, source="the form", kind=kind) from None


def arguments_of(text: str) -> dict[str, str | bool | int | float]:
    """Return the arguments that lines of `name=value` spell.

    Raises:
        InputError: if a line is none.
    """
    return dict(_argument(line) for line in text.splitlines() if line.strip())


def _argument(line: str) -> tuple[str, str | bool | int | float]:
    name, found, text = line.strip().partition("=")
    if not found or not name.strip():
        raise InputError(
            "is not an argument",
            field="arguments",
            value=line,
            remedy="write name=value, one a line",
        )
    return name.strip(), _value(text.strip())


def _value(text: str) -> str | bool | int | float:
    """Return a number or truth value where the text is one as JSON has it, else the text.

    NaN and what is beyond all numbers are text: no document has them as numbers.
    """
    try:
        value = json.loads(text)
    except ValueError:
        return text
    is_plain = isinstance(value, bool | int | float) and math.isfinite(value)
    return value if is_plain else text
