"""Shell words: the arguments that a launch script would pass, found without running it.

Variables that the script sets to plain values or to whole-number arithmetic are put in; arguments
are found in commands, in arrays and in quoted strings. What only a run could decide is said.
"""

from __future__ import annotations

import ast
import operator
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from planner.errors import DocumentError
from planner.importers.training.slurm_directives import slurm_variables

_DEFAULT = r"(?:[^{}\n]|\$\{[^{}\n]*\})*"  # of ${NAME:-"${OTHER}/x"}
_ASSIGNMENT = re.compile(
    r"(?:^|(?<=[;\s]))(?:export\s+|local\s+)?([A-Za-z_]\w*)="
    r"(\"[^\"\n]*\"|'[^'\n]*'|\$\(\([^\n]*?\)\)"
    rf"|\$\{{\w+:?[-=]{_DEFAULT}\}}|[^\s();\"']*)(?=[;\s]|$)",
    re.MULTILINE,
)
_VARIABLE = re.compile(rf"\$(?:(\w+)|\{{(\w+)(?::?[-=]({_DEFAULT}))?\}})")
_EXPR = re.compile(r"\$\(expr ([^()\n]*)\)|`expr ([^`\n]*)`")
_ARITHMETIC = re.compile(r"\$\(\(([\d\s+*/%()<>-]{1,200})\)\)")
_HERE_DOCUMENT = re.compile(
    r"<<-?[ \t]*(['\"]?)(\w+)\1[^\n]*\n.*?^\s*\2[ \t]*$", re.MULTILINE | re.DOTALL
)
_ARRAY = re.compile(r"[A-Za-z_]\w*\+?=\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")
END = ";"  # of a command, whose last flag has no more values
_HOLDS_FLAGS = re.compile(r"(?:^|[\s=(])(?:--[a-z]|\+{0,2}[a-z]\w*(?:\.\w+)+=)")
_OPENING = re.compile(r"^[A-Za-z_]\w*\+?=\(?|^\(")
_FLAG = re.compile(r"--[a-z][\w-]*")
_TEXT_LIMIT = 4 * 2**20
_VALUE_LIMIT = 2**12
_DEPTH = 4
_BITS = 64  # of the shell's own numbers
_OPERATIONS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.LShift: operator.lshift,
    ast.Pow: operator.pow,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellWords:
    """The words of a script, its flags that stand under a condition, and what was taken for set.

    `END` stands between the words of two commands; `variables` are the names that are set.
    """

    words: tuple[str, ...]
    conditional: frozenset[str]
    assumptions: tuple[str, ...]
    variables: frozenset[str]


def shell_words(text: str, *, source: str) -> ShellWords:
    """Return the words of `text` with its variables put in.

    Raises:
        DocumentError: if quotes are open.
    """
    joined = text.replace("\r\n", "\n").replace("\\\n", " ")
    joined = _EXPR.sub(lambda m: f"$(({(m[1] or m[2]).replace(chr(92), '')}))", joined)
    known, assumptions = _known(joined)
    known = {**slurm_variables(text), **known}
    whole = _substituted(_with_ends(joined), known)
    try:
        words = _split(whole)
    except ValueError:
        words = _split_or_refuse(_HERE_DOCUMENT.sub("", whole), source=source)
    return ShellWords(
        words=tuple(inner for word in words for inner in _inner(word, _DEPTH)),
        conditional=_conditional(joined),
        assumptions=tuple(assumptions),
        variables=frozenset(known),
    )


def _with_ends(text: str) -> str:
    """Return the text with the end of a command on a line by itself, after each but an array's."""
    parts, last = list[str](), 0
    for array in _ARRAY.finditer(text):
        parts += [text[last : array.start()].replace("\n", f"\n{END}\n"), array[0]]
        last = array.end()
    return "".join([*parts, text[last:].replace("\n", f"\n{END}\n")])


def _split(text: str) -> list[str]:
    return shlex.split(text, comments=True)


def _split_or_refuse(text: str, *, source: str) -> list[str]:
    try:
        return _split(text)
    except ValueError as error:
        raise DocumentError(
            f"cannot be read as arguments: {error}",
            field=source,
            remedy="close the quotes, or give a file with the arguments alone",
        ) from None


def _inner(word: str, depth: int) -> Iterator[str]:
    """Yield the words that a quoted string or the opening of an array holds, or the word."""
    rest = _OPENING.sub("", word)
    if depth and _HOLDS_FLAGS.search(rest) and (rest != word or re.search(r"\s", word)):
        try:
            words = _split(rest)
        except ValueError:
            words = rest.split()
        for one in words:
            yield from _inner(one, depth - 1)
    else:
        yield word


def _known(text: str) -> tuple[dict[str, str], list[str]]:
    """Return the value of each variable, its last, and a line on each that has several."""
    values: dict[str, list[str]] = {}
    for name, value in _ASSIGNMENT.findall(_without_comments(text)):
        plain = value.strip("'\"")
        if plain not in values.setdefault(name, []):
            values[name].append(plain)
    used = {first or second for first, second, _ in _VARIABLE.findall(text)}
    said = [
        f"{name} is set several times ({', '.join(found[:4])}): {found[-1]}"
        for name, found in values.items()
        if len(found) > 1 and name in used and found[-1].isdigit()
    ]
    return {name: found[-1] for name, found in values.items()}, said


def _without_comments(text: str) -> str:
    return re.sub(r"(?m)^\s*#.*$", "", text)


def _substituted(text: str, known: dict[str, str]) -> str:
    """Return the text with variables put in, one in another too, and arithmetic done."""
    plain = dict(known)
    for _ in range(_DEPTH):
        plain = {name: _once(value, plain, within=name) for name, value in plain.items()}
    return _once(text, plain)


def _once(text: str, known: dict[str, str], *, within: str = "") -> str:
    """Return the text with each variable's value; that of `within` comes from outside."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        default = match[3].strip("'\"") if match[3] is not None else match[0]
        found = "" if name == within else known.get(name, "")
        return found if found and len(found) <= _VALUE_LIMIT else default

    text = _VARIABLE.sub(value, text)[:_TEXT_LIMIT]
    text = re.sub(r"\$\(\([^\n]*?\)\)", lambda match: _bare_names(match[0], known), text)
    return _ARITHMETIC.sub(_computed, text)


def _bare_names(arithmetic: str, known: dict[str, str]) -> str:
    """Return `$((TP * 2))` with the numbers that its bare names stand for."""
    return re.sub(
        r"(?<![\w$])[A-Za-z_]\w*",
        lambda m: known[m[0]] if known.get(m[0], "").isdigit() else m[0],
        arithmetic,
    )


def _computed(match: re.Match[str]) -> str:
    """Return the number that an arithmetic expression of the shell is, or its text."""
    try:
        tree = ast.parse(match[1].strip(), mode="eval")
        return str(_number(tree.body))
    except (SyntaxError, ZeroDivisionError, ValueError, RecursionError, MemoryError):
        return match[0]


def _number(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        left, right = _number(node.left), _number(node.right)
        bounded = 0 <= right < _BITS and abs(left) < 2**_BITS
        if bounded or not isinstance(node.op, ast.LShift | ast.Pow):
            return _OPERATIONS[type(node.op)](left, right)
    raise ValueError("is not arithmetic of whole numbers")


def _conditional(text: str) -> frozenset[str]:
    """Return the flags on lines between `if` and `fi`, or `case` and `esac`."""
    found: set[str] = set()
    depth = 0
    for line in _without_comments(text).splitlines():
        words = re.findall(r"\b(?:if|fi|case|esac)\b", line) if line.strip() else []
        opening = line.lstrip().startswith(("if ", "if[", "case "))
        depth += opening
        if depth:
            found.update(_FLAG.findall(line))
        if depth and ({"fi", "esac"} & set(words)) and not line.lstrip().startswith("--"):
            depth -= 1
    return frozenset(found)
