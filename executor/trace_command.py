"""Trace command: a function of a user's file or module to a model graph in JSON.

    python -m executor.trace_command FILE.py:FUNCTION [--blocks PATH] [--name NAME]
        [--out FILE] [--json]
    python -m executor.trace_command --transformers config.json [--class NAME]
        [--sequence-length N] ...

FUNCTION takes nothing and returns what `meshwright.trace` takes: `build_model`, a tuple or mapping
of example inputs, and where results depend on values a mapping of sizes.
Exit status: 0 traced, 1 not, 2 usage.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from planner.extras import exit_without_extras

if __name__ == "__main__":
    exit_without_extras("executor.trace_command")

from executor.errors import LaunchError, ModelMismatchError
from executor.tracing import ExampleInputs, Trace, traced
from executor.transformers_class import transformers_model
from planner.errors import MeshwrightError
from planner.units import format_bytes


class Traceable(NamedTuple):
    """What a user's function returns."""

    build_model: Callable[[], Any]
    example_inputs: ExampleInputs
    sizes: Mapping[str, int] | None = None


def main(arguments: Sequence[str]) -> int:
    """Trace what the command line names; return the exit status."""
    parsed = _parse(arguments)
    try:
        result = _traced(parsed)
        if parsed.out is not None:
            _write(parsed.out, result.graph.to_json())
    except MeshwrightError as error:
        return _fail(type(error).__name__, str(error), as_json=parsed.json)
    text = result.graph.to_json() if parsed.json else "\n".join(_lines(result, parsed.out)) + "\n"
    print(text, end="")  # noqa: T201 - this is a command
    return 0


def traceable(reference: str) -> Traceable:
    """Return what the function behind `FILE.py:FUNCTION` or `MODULE:FUNCTION` returns.

    Raises:
        LaunchError: if there is no such function, it raises, or it returns something else.
    """
    home, _, name = reference.rpartition(":")
    if not home or not name.isidentifier():
        raise _bad(reference, "names no function", "write FILE.py:FUNCTION or MODULE:FUNCTION")
    function = getattr(_module(home, reference), name, None)
    if not callable(function):
        raise _bad(reference, f"has no function {name}", "check its name")
    try:
        returned = function()
    except Exception as error:  # noqa: BLE001 - whatever a user's function raises is reported
        raise _bad(reference, f"raised {_in_one_line(error)}", "correct the function") from None
    if not (isinstance(returned, tuple) and _is_traceable(*returned)):
        raise _bad(
            reference,
            f"returned {type(returned).__qualname__}",
            "return (build_model, example_inputs): a function that builds the module, and a tuple "
            "or mapping of the inputs of one forward; and third, if need be, sizes as "
            "meshwright.trace takes them",
        )
    build_model, inputs, *sizes = returned
    listed = inputs if isinstance(inputs, Mapping | tuple | list) else (inputs,)
    return Traceable(build_model, listed, sizes[0] if sizes else None)


def _is_traceable(*returned: Any) -> bool:
    """Return whether a function's results are a builder, inputs, and sizes or none."""
    sizes = returned[2:]
    known = len(returned) == 2 or (len(sizes) == 1 and isinstance(sizes[0], Mapping))
    return known and callable(returned[0])


def _traced(parsed: argparse.Namespace) -> Trace:
    if parsed.transformers is not None:
        return _traced_by_configuration(parsed)
    build_model, inputs, sizes = traceable(parsed.function)
    return traced(build_model, inputs, blocks=parsed.blocks, name=parsed.name, sizes=sizes)


def _traced_by_configuration(parsed: argparse.Namespace) -> Trace:
    """Return the trace of the class of transformers that a config.json names."""
    found = transformers_model(
        parsed.transformers, class_name=parsed.class_name, sequence_length=parsed.sequence_length
    )
    trace = partial(
        traced, found.build_model, found.example_inputs, blocks=parsed.blocks, name=parsed.name
    )
    said = found.assumptions
    try:
        result = trace()
    except ModelMismatchError:  # in training some classes look at values that they draw
        result = trace(training=False)
        said = (*said, "traced as in evaluation: what dropout keeps is not counted")
    said = (*said, *result.graph.assumptions)
    return replace(result, graph=result.graph.model_copy(update={"assumptions": said}))


def _module(home: str, reference: str) -> ModuleType:
    path = Path(home) if home.endswith(".py") else None
    if path is not None and not path.is_file():
        raise _bad(reference, "no such file", "check the path")
    folder = Path.cwd() if path is None else path.resolve().parent
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(home if path is None else path.stem)
    except Exception as error:  # noqa: BLE001 - whatever a user's file raises is reported
        raise _bad(reference, f"cannot be imported: {_in_one_line(error)}", "correct it") from None


def _lines(result: Trace, out: Path | None) -> list[str]:
    graph = result.graph
    blocks = sum(run.block_count for run in graph.runs)
    kept, tokens = format_bytes(result.saved_bytes), result.tokens
    lines = [
        f"{graph.name}: {result.parameter_count:,} parameters, {blocks} blocks",
        f"forward of {tokens} tokens: {result.forward_flop:,} FLOPs, {kept} kept for backward",
        *graph.assumptions,
    ]
    return [*lines, f"written to {out}"] if out is not None else lines


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise LaunchError(
            f"cannot be written: {error.strerror}",
            field="--out",
            value=str(path),
            remedy="give a path in a folder that exists and can be written",
        ) from None


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="meshwright trace", description="Turn a torch module into a model graph."
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("function", nargs="?", help="FILE.py:FUNCTION or MODULE:FUNCTION")
    what.add_argument(
        "--transformers", type=Path, help="a config.json, whose class of transformers is traced"
    )
    parser.add_argument("--class", dest="class_name", help="the class; default: architectures'")
    parser.add_argument("--sequence-length", type=int, help="tokens of a sequence; default: 4096")
    parser.add_argument("--blocks", help="path of the list of blocks in the module")
    parser.add_argument("--name", help="name of the model; default: its class")
    parser.add_argument("--out", type=Path, help="where to write the model graph (JSON)")
    parser.add_argument("--json", action="store_true", help="print the model graph on stdout")
    return parser.parse_args(arguments)


def _fail(kind: str, message: str, *, as_json: bool) -> int:
    print(f"error: {message}", file=sys.stderr)  # noqa: T201 - this is a command
    if as_json:
        failure = {"kind": kind, "message": message}
        print(json.dumps({"status": "error", "exit_code": 1, "error": failure}))  # noqa: T201
    return 1


def _bad(reference: str, problem: str, remedy: str) -> LaunchError:
    return LaunchError(problem, field="MODULE:FUNCTION", value=reference, remedy=remedy)


def _in_one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
