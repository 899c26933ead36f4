"""Fields of a Python recipe: what its calls and assignments write out, as a mapping by their names.

`MegatronStrategy(tensor_model_parallel_size=4)` gives a section `MegatronStrategy`, as
`run.Config(MegatronStrategy, ...)` does, and `recipe.trainer.strategy.x = 4` the sections
`trainer.strategy`. The file is read and never run: a value that is computed stands as its text, but
for a parameter's default, and for what a function of the file is called with by another. What
stands under a condition counts unless these say that it is false.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_PARTIALS = {"Config", "Partial", "partial"}
_LENGTH_LIMIT = 80
_COMPUTED = "computed: "
_COMPARED: dict[type[ast.cmpop], Callable[[object, object], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}


def python_fields(text: str, function: str | None) -> dict[str, Any]:
    """Return what the file, or one function of it, writes; empty where it is no Python."""
    try:
        tree: ast.AST = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    fields: dict[str, Any] = {}
    chosen = functions.get(function or "")
    if chosen is None:
        _read(tree, fields, {})
    else:
        _read_function(chosen, fields, {}, functions)
    return fields


def _read_function(
    function: ast.FunctionDef,
    fields: dict[str, Any],
    given: Mapping[str, object],
    functions: Mapping[str, ast.FunctionDef],
) -> None:
    """Read what the function writes over what those of `functions` that it calls write."""
    arguments = function.args
    defaults = zip(reversed(arguments.args), reversed(arguments.defaults), strict=False)
    named = {one.arg: _value(value, {}) for one, value in defaults} | dict(given)
    others = {name: one for name, one in functions.items() if name != function.name}
    for call in (node for node in _nodes(function, named) if isinstance(node, ast.Call)):
        called = others.get(_last_name(call.func))
        if called is not None:
            passed = {one.arg: _value(one.value, named) for one in call.keywords if one.arg}
            _read_function(called, fields, passed, others)
    _read(function, fields, named)


def _nodes(tree: ast.AST, named: Mapping[str, object]) -> Iterator[ast.AST]:
    """Yield all nodes but those under a condition that the names say is false."""
    left = [tree]
    while left:
        node = left.pop(0)
        yield node
        holds = _holds(node.test, named) if isinstance(node, ast.If) else None
        if isinstance(node, ast.If) and holds is not None:
            left += node.body if holds else node.orelse
        else:
            left += ast.iter_child_nodes(node)


def _holds(test: ast.expr, named: Mapping[str, object]) -> bool | None:
    """Return whether a condition on names holds, None where they do not say it."""
    if isinstance(test, ast.BoolOp):
        parts = [_holds(one, named) for one in test.values]
        decides = isinstance(test.op, ast.Or)
        return decides if decides in parts else None if None in parts else not decides
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        held = _holds(test.operand, named)
        return None if held is None else not held
    if isinstance(test, ast.Compare) and type(test.ops[0]) in _COMPARED and len(test.ops) == 1:
        sides = [_plain(one, named) for one in (test.left, test.comparators[0])]
        known = not any(isinstance(side, str) and side.startswith(_COMPUTED) for side in sides)
        return _COMPARED[type(test.ops[0])](*sides) if known else None
    return bool(named[test.id]) if isinstance(test, ast.Name) and test.id in named else None


def _plain(node: ast.expr, named: Mapping[str, object]) -> object:
    """Return a value, that of a word in small letters too."""
    if isinstance(node, ast.Call) and _last_name(node.func) == "lower" and not node.args:
        inner = _value(node.func.value, named) if isinstance(node.func, ast.Attribute) else None
        return inner.lower() if isinstance(inner, str) else inner
    return _value(node, named)


def _read(tree: ast.AST, fields: dict[str, Any], named: Mapping[str, object]) -> None:
    for node in _nodes(tree, named):
        if isinstance(node, ast.Call):
            _of_call(node, fields, named)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            _of_assignment(node.targets[0], node.value, fields, named)


def _of_call(call: ast.Call, fields: dict[str, Any], named: Mapping[str, object]) -> None:
    name = _last_name(call.func)
    if name in _PARTIALS and call.args:
        name = _last_name(call.args[0])
    for keyword in call.keywords:
        if name and keyword.arg is not None:
            section = fields.setdefault(name, {})
            if isinstance(section, dict):
                section[keyword.arg] = _value(keyword.value, named)


def _of_assignment(
    target: ast.expr, value: ast.expr, fields: dict[str, Any], named: Mapping[str, object]
) -> None:
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
    section[names[-1]] = _value(value, named)


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _value(node: ast.expr, named: Mapping[str, object]) -> object:
    if isinstance(node, ast.Name) and node.id in named:
        return named[node.id]
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return f"{_COMPUTED}{ast.unparse(node)[:_LENGTH_LIMIT]}"
