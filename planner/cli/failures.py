"""Failures as people and programs see them: one message on stderr, an exit code, JSON on request.

With `--json` the same failure is one JSON object on stdout as well, so that a program reads one
stream whatever happens:

    {"status": "error", "exit_code": 1,
     "error": {"kind": "DocumentError", "field": ..., "value": ..., "problem": ..., "remedy": ...,
               "message": ...}}
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from importlib.metadata import version
from typing import Any

import typer
from typer import TyperException

from planner.cli.neighbours import neighbours_said
from planner.errors import InputError, MeshwrightError, VerificationError, shorten
from planner.schema.complaints import complaint_words

ERROR = 1
USAGE = 2
NEGATIVE_ANSWER = 3
INTERRUPTED = 130


def report(error: Exception, *, as_json: bool) -> int:
    """Print `error` in one line on stderr (and as JSON on stdout) and return the exit code."""
    if isinstance(error, TyperException) and not error.format_message().strip():
        return USAGE  # the help stands on the screen already: no command was given
    message, code = _message(error), _exit_code(error)
    if _debugging():
        traceback.print_exception(error, file=sys.stderr)
    print(f"error: {message}", file=sys.stderr)  # noqa: T201
    if as_json:
        print(json.dumps(_fields(error, message=message, exit_code=code)))  # noqa: T201
    return code


def report_interrupt() -> int:
    """Say that the person stopped the command, and return the shell's code for it."""
    print("interrupted", file=sys.stderr)  # noqa: T201
    return INTERRUPTED


def out_of_time(seconds: float) -> InputError:
    """Return the error that nothing was found in time, which is no negative answer."""
    return InputError(
        "ran out before anything was found",
        field="job.limits.solver_seconds",
        value=seconds,
        remedy="allow more seconds, or narrow the degrees",
    )


def error_fields(error: Exception) -> dict[str, Any]:
    """Return what `error` says, field by field, for a JSON line."""
    fields: dict[str, Any] = {"kind": type(error).__name__}
    if isinstance(error, InputError):
        value = None if error.value is None else shorten(error.value)
        fields |= {
            "field": error.field,
            "value": value,
            "problem": error.problem,
            "remedy": error.remedy,
        }
    return fields | {"message": _message(error)}


def _fields(error: Exception, *, message: str, exit_code: int) -> dict[str, Any]:
    detail = error_fields(error) | {"message": message}
    return {"status": "error", "exit_code": exit_code, "error": detail}


def _message(error: Exception) -> str:
    if isinstance(error, TyperException):
        return _usage_message(error)
    if isinstance(error, VerificationError):
        return f"verification failed: {_one_line(error)}"
    if isinstance(error, MeshwrightError):
        return _one_line(error)
    if isinstance(error, typer.Abort):
        return "aborted"
    if isinstance(error, OSError):
        return f"{error.filename or 'system'}: {error.strerror or _one_line(error)}"
    return _unexpected(error)


def _unexpected(error: Exception) -> str:
    """Return what to say of what no user did: another distribution's files, or a bug."""
    what = f"unexpected {type(error).__name__}: {shorten(str(error) or 'no message')}"
    beside = neighbours_said()
    if beside:
        return f"{what}; {beside}"
    return (
        f"{what}; this is a bug in meshwright {version('meshwright')}: please report the command "
        "with what MESHWRIGHT_DEBUG=1 prints"
    )


def _usage_message(error: TyperException) -> str:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "meshwright"
    option = getattr(error, "option_name", None)
    argument = option and _argument_called(option, context)
    if argument:
        usage = " ".join([path, *_arguments(context)])
        return f"{argument} is written without {option}: `{usage}`; see `{path} --help`"
    return f"{_said(error)}; see `{path} --help`"


def _said(error: TyperException) -> str:
    """Return what is wrong, with what an option was given, and the remedy where there is one.

    Options are parsed by pydantic, whose error is the cause and knows its input.
    """
    text = _one_line(error.format_message()).removeprefix("Invalid value for ").rstrip(".")
    complaints = getattr(error.__cause__, "errors", None)
    if not callable(complaints):
        return text
    complaint = complaints()[0]
    given, own = str(complaint.get("input")), complaint["msg"]
    problem, remedy = complaint_words(complaint)
    problem, remedy = problem.rstrip("."), f"; {remedy}"
    if complaint["type"] == "value_error":  # typer's own words, which name what may be written
        remedy = ""
    got = "" if given in problem else f" (got {shorten(given)})"
    return f"{text.removesuffix(own.rstrip('.'))}{problem}{got}{remedy}"


def _argument_called(option: str, context: Any) -> str | None:
    """Return the argument that `option` was meant to name, as in `plan --model M`."""
    name = option.lstrip("-").replace("-", "_")
    return next((argument for argument in _arguments(context) if argument.lower() == name), None)


def _arguments(context: Any) -> list[str]:
    """Return the names of the command's arguments in their order: MODEL, CLUSTER."""
    parameters = context.command.params if context is not None else []
    return [p.name.upper() for p in parameters if p.param_type_name == "argument"]


def _exit_code(error: Exception) -> int:
    if isinstance(error, TyperException):
        return USAGE
    return NEGATIVE_ANSWER if isinstance(error, VerificationError) else ERROR


def _one_line(text: object) -> str:
    return " ".join(str(text).split())


def _debugging() -> bool:
    return os.environ.get("MESHWRIGHT_DEBUG", "") not in {"", "0"}
