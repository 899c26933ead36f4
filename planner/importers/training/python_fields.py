"""Fields of a Python recipe: what its calls and assignments write out, as a mapping by their names.

`MegatronStrategy(tensor_model_parallel_size=4)` gives a section `MegatronStrategy`, as
`run.Config(MegatronStrategy, ...)` does, and `recipe.trainer.strategy.x = 4` the sections
`trainer.strategy`. The file is read and never run: a value that is computed stands as its text.
"""

from __future__ import annotations

import ast
from typing import Any

_PARTIALS = {"Config", "Partial", "partial"}
_LENGTH_LIMIT = 80


def python_fields(text: str, function: str | None) -> dict[str, Any]:
    """Return what the file, or one function of it, writes; empty where it is no Python."""
    try:
        tree: ast.AST = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    for node in ast.walk(tree) if function is not None else ():
        if isinstance(node, ast.FunctionDef) and node.name == function:
            tree = node
    fields: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            _of_call(node, fields)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            _of_assignment(node.targets[0], node.value, fields)
    return fields


def _of_call(call: ast.Call, fields: dict[str, Any]) -> None:
    name = _last_name(call.func)
    if name in _PARTIALS and call.args:
        name = _last_name(call.args[0])
    for keyword in call.keywords:
        if name and keyword.arg is not None:
            section = fields.setdefault(name, {})
            if isinstance(section, dict):
                section[keyword.arg] = _value(keyword.value)


def _of_assignment(target: ast.expr, value: ast.expr, fields: dict[str, Any]) -> None:
    names: list[str] = []
    while isinstance(target, ast.Attribute):
        names.insert(0, target.attr)
        target = target.value
    if not names or not isinstance(target, ast.Name):
        return
    section = fields
    for name in names[:-1]:
        inner = section.setdefault(name, {})
        if not isinstance(inner, dict):
            return
        section = inner
    section[names[-1]] = _value(value)


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _value(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return f"computed: {ast.unparse(node)[:_LENGTH_LIMIT]}"
