"""torchtitan in Python: the fields that a configuration function writes out, without running it.

Understood are the calls `ParallelismConfig(...)`, `TrainingConfig(...)`, `CompileConfig(...)` and
`replace(config.parallelism, ...)`, assignments such as `config.training.seq_len = 8192`, and what
stands for activation checkpointing: `SelectiveAC.Config()`, `FullAC.Config()` or None;
`model_registry("8B", converters=[...])` and `ChunkedLossWrapper.Config()`.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from planner.errors import DocumentError
from planner.importers.training.formats.torchtitan_keys import FLOAT8_WORDS

_FLOAT8 = "Float8LinearConverter"
_CLASSES = {
    "ParallelismConfig": "parallelism",
    "TrainingConfig": "training",
    "CompileConfig": "compile",
}
_SECTIONS = frozenset({*_CLASSES.values()})
_CHECKPOINTING = {"SelectiveAC": "selective", "FullAC": "full", "MemoryBudgetAC": "memory_budget"}
_FIELD = "activation_checkpoint"
# Parts of a trainer that are read where they are made, or that say nothing of a step.
_PARTS = """
    training parallelism compile activation_checkpoint loss model_spec model hf_assets_path
    dump_folder tokenizer dataloader optimizer optim lr_scheduler checkpoint metrics profiler
    profiling comm debug validator
"""
_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Mult: operator.mul,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.FloorDiv: operator.floordiv,
}
_NUMBER_LIMIT = 2**40

Sections = dict[str, dict[str, Any]]


def sections_of_python(text: str, *, source: str, function: str | None = None) -> Sections:
    """Return the fields by section that `function`, or the only one, writes out.

    Raises:
        DocumentError: if the file is no Python, or says several configurations or none.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise DocumentError(
            f"is not valid Python: {error}", field=source, remedy="correct the syntax"
        ) from None
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    found = {
        name: sections
        for name, node in functions.items()
        if (sections := _sections(node, functions, frozenset({name})))
    }
    if function is not None:
        found = {name: sections for name, sections in found.items() if name == function}
    if len(found) == 1:
        return next(iter(found.values()))
    names = ", ".join(list(found)[:12])
    raise DocumentError(
        "has several functions with a configuration" if found else "has no such configuration",
        field=source if function is None else f"{source}:{function}",
        value=names or None,
        remedy=f"name one: {source}:FUNCTION"
        if found
        else "give a function that writes ParallelismConfig(...) out",
    )


def _sections(
    function: ast.FunctionDef, functions: Mapping[str, ast.FunctionDef], seen: frozenset[str]
) -> Sections:
    """Return what the function writes, over what those of the file that it calls write.

    `seen` are the functions that led here, which are not entered again.
    """
    sections: Sections = {}
    for name in _called(function):
        if name in functions and name not in seen:
            for section, values in _sections(functions[name], functions, seen | {name}).items():
                sections[section] = {**sections.get(section, {}), **values}
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            _read_call(node, sections)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            _read_assignment(node.targets[0], node.value, sections)
    return sections


def _called(function: ast.FunctionDef) -> list[str]:
    """Return the names of the functions that are called without an owner."""
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call))
    return [call.func.id for call in calls if isinstance(call.func, ast.Name)]


def bases_elsewhere(text: str, function: str | None) -> list[str]:
    """Return the functions of other files whose configuration `function`, or any, changes."""
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    own = {node.name for node in functions}
    return [
        value.func.id
        for node in functions
        if function is None or node.name == function
        for statement in ast.walk(node)
        if isinstance(statement, ast.Assign)
        and isinstance(value := statement.value, ast.Call)
        and isinstance(value.func, ast.Name)
        and value.func.id.islower()
        and not (value.args or value.keywords)
        and value.func.id not in own
    ]


def _read_call(call: ast.Call, sections: Sections) -> None:
    name = _last_name(call.func)
    _read_parts(call, name, sections)
    if name == "Config" and _owner(call).endswith("Trainer"):
        names = [one.arg for one in call.keywords if one.arg is not None]
        others = {part: True for part in names if part not in _PARTS.split()}
        sections.setdefault("trainer", {}).update(others)
    section = _CLASSES.get(name)
    if name == "replace" and call.args:
        changed = _last_name(call.args[0])
        section = changed if changed in _SECTIONS else None
    for keyword in call.keywords:
        if section is not None and keyword.arg is not None:
            path = f"{section}.{keyword.arg}"
            sections.setdefault(section, {})[keyword.arg] = _literal(keyword.value, path)
        elif keyword.arg == _FIELD:
            sections[_FIELD] = {"mode": _checkpointing(keyword.value)}


def _read_parts(call: ast.Call, name: str, sections: Sections) -> None:
    """Read the flavor and the converters of a model, and that its loss takes tokens by pieces."""
    if name == "model_registry":
        flavor = call.args[0] if call.args else None
        given = next((one.value for one in call.keywords if one.arg == "converters"), None)
        made = given.elts if isinstance(given, ast.List) else []
        names = [_owner(one).removesuffix("LinearConverter").lower() for one in made]
        model = sections.setdefault("model", {})
        model["converters"] = names
        for one in made:
            if _owner(one) == _FLOAT8 and isinstance(one, ast.Call):
                sections.setdefault("float8", {}).update(_float8_words(one))
        if isinstance(flavor, ast.Constant):
            model["flavor"] = flavor.value
    elif name == "Config" and _owner(call) == "ChunkedLossWrapper":
        sections["loss"] = {"by_pieces": True}


def _float8_words(call: ast.Call) -> dict[str, Any]:
    """Return what a converter to 8 bits says of scales and gathers."""
    return {
        one.arg: one.value.value
        for one in call.keywords
        if one.arg in FLOAT8_WORDS and isinstance(one.value, ast.Constant)
    }


def _owner(node: ast.expr) -> str:
    """Return what `Owner.Config(...)` makes, by its name."""
    func = node.func if isinstance(node, ast.Call) else node
    return _last_name(func.value) if isinstance(func, ast.Attribute) else _last_name(func)


def _read_assignment(target: ast.expr, value: ast.expr, sections: Sections) -> None:
    if not isinstance(target, ast.Attribute):
        return
    if target.attr == _FIELD:
        sections[_FIELD] = {"mode": _checkpointing(value)}
        return
    section = _last_name(target.value)
    if section in _SECTIONS:
        path = f"{section}.{target.attr}"
        sections.setdefault(section, {})[target.attr] = _literal(value, path)


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _checkpointing(node: ast.expr) -> str:
    """Return the mode that an expression such as `SelectiveAC.Config()` or None stands for."""
    if isinstance(node, ast.Constant) and node.value is None:
        return "none"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        owner = _last_name(node.func.value)
        if owner in _CHECKPOINTING:
            return _CHECKPOINTING[owner]
    raise DocumentError(
        "is computed, not written out",
        field=_FIELD,
        value=ast.unparse(node)[:80],
        remedy="write SelectiveAC.Config(), FullAC.Config() or None",
    )


def _literal(node: ast.expr, path: str) -> Any:
    try:
        return _number(node) if isinstance(node, ast.BinOp) else ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise DocumentError(
            "is computed, not written out",
            field=path,
            value=ast.unparse(node)[:80],
            remedy="write its value: the file is read, not run",
        ) from None


def _number(node: ast.expr) -> int:
    """Return the whole number that `8 * 2048` is.

    Raises:
        ValueError: if it is no arithmetic of whole numbers.
    """
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        left, right = _number(node.left), _number(node.right)
        if abs(left) < _NUMBER_LIMIT and 0 < right < _NUMBER_LIMIT:
            return _OPERATIONS[type(node.op)](left, right)
    raise ValueError("is not arithmetic of whole numbers")
