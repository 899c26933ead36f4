"""Training configurations of other software as strategies, whichever they are.

Recognised are the formats of `planner.importers.training.formats` by their tables, and beside these
torchtitan's TOML and Python, Megatron-LM's arguments in a text or a shell script, DeepSpeed's JSON
and Accelerate's YAML.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from planner.errors import DocumentError
from planner.importers.training.command_fields import command_fields
from planner.importers.training.config import Setting, TrainingConfig
from planner.importers.training.config_bases import with_bases
from planner.importers.training.deepspeed import is_deepspeed, read_deepspeed
from planner.importers.training.format import Format, leaves_of
from planner.importers.training.formats.nemo import MEGATRON_YAML
from planner.importers.training.formats.registry import format_of, known_format_of
from planner.importers.training.hugging_face import is_accelerate, read_accelerate
from planner.importers.training.megatron import read_megatron
from planner.importers.training.python_fields import python_fields
from planner.importers.training.scalar_text import with_numbers
from planner.importers.training.settings import read_format
from planner.importers.training.shell_words import shell_words
from planner.importers.training.torchtitan import read_torchtitan_python, read_torchtitan_toml
from planner.schema.document import DOCUMENT_BYTES_LIMIT, parse_fields
from planner.schema.files import file_content
from planner.schema.strategy import Strategy

_FLAG = re.compile(r"(?:^|\s)--[a-zA-Z][\w.-]+", re.MULTILINE)
_OVERRIDE = re.compile(r"(?:^|\s)[+~]{0,2}[a-z]\w*(?:\.\w+)*=\S", re.MULTILINE)
_FUNCTION = re.compile(r"(.+\.py):([A-Za-z_]\w*)")
_MARKS = ("tensor_model_parallel_size", "pipeline_model_parallel_size")
_REMEDY = (
    "give a strategy or plan, or a training configuration of a framework that docs/exports.md lists"
)


def strategy_from(path: Path, setting: Setting) -> TrainingConfig:
    """Return the strategy that the configuration file at `path` says, in whichever format.

    `FILE.py:FUNCTION` names one function of a Python file.

    Raises:
        DocumentError: if it cannot be read, or a field of it is bad.
    """
    match = _FUNCTION.fullmatch(str(path))
    file, function = (Path(match[1]), match[2]) if match else (path, None)
    text = _text(file)
    return config_from_text(
        text,
        replace(setting, folder=file.parent),
        source=str(file),
        suffix=file.suffix.lower(),
        function=function,
    )


def is_foreign(fields: Mapping[str, Any]) -> bool:
    """Return whether a mapping is a configuration of other software."""
    leaves = leaves_of(fields)
    return (
        format_of(leaves) is not None
        or known_format_of(leaves) is not None
        or is_deepspeed(fields)
        or is_accelerate(fields)
        or bool(_megatron_arguments(fields))
        or _stray_mark(leaves) is not None
        or "defaults" in fields
        or not _has_own(fields)
    )


def _has_own(fields: Mapping[str, Any]) -> bool:
    """Return whether a mapping has a key of a strategy or a plan of ours, misspelt or not."""
    own = ("strategy", *Strategy.model_fields)
    return not fields or any(get_close_matches(name, own, n=1, cutoff=0.9) for name in fields)


def config_from_text(
    text: str,
    setting: Setting,
    *,
    source: str,
    suffix: str = "",
    function: str | None = None,
) -> TrainingConfig:
    """Return the strategy that `text` says; `suffix` is its file's.

    Raises:
        DocumentError: if it is in no format that is read, or a field of it is bad.
    """
    if suffix == ".toml":
        return read_torchtitan_toml(text, setting, source=source)
    if suffix == ".py":
        written = python_fields(text, function)
        table = format_of(leaves_of(written))
        if table is not None:
            return read_format(table, written, setting)
        return read_torchtitan_python(text, setting, source=source, function=function)
    if suffix in {".json", ".yaml", ".yml"}:
        yaml = suffix != ".json"
        fields = parse_fields(text.encode(), source=source, yaml_allowed=yaml)
        return config_from_fields(fields, setting, source=source, text=text)
    if _FLAG.search(text) or _OVERRIDE.search(text):
        return _config_from_command(text, setting, source=source)
    raise DocumentError("is in no format that is read", field=source, remedy=_REMEDY)


def _config_from_command(text: str, setting: Setting, *, source: str) -> TrainingConfig:
    """Return the strategy that the arguments of a launch script say."""
    given = shell_words(text, source=source)
    fields = command_fields(given, text)
    table = _read_or_refused(leaves_of(fields), source)
    if table is None and not _FLAG.search(text):
        raise DocumentError("is in no format that is read", field=source, remedy=_REMEDY)
    if table is None or table is MEGATRON_YAML:
        return read_megatron(text, setting, source=source)
    config = read_format(table, fields, setting)
    return replace(config, assumptions=(*given.assumptions, *config.assumptions))


def _read_or_refused(leaves: Mapping[str, Any], source: str) -> Format | None:
    """Return the format of such keys, None if they are of no table.

    Raises:
        DocumentError: if their framework is known, and not read.
    """
    known = known_format_of(leaves)
    if known is not None:
        raise DocumentError(
            f"looks like a configuration of {known.title}, which is not read",
            field=source,
            remedy=known.remedy,
        )
    return format_of(leaves)


def config_from_fields(
    fields: Mapping[str, Any], setting: Setting, *, source: str, text: str = ""
) -> TrainingConfig:
    """Return the strategy that a mapping says: ours, or that of a framework.

    Raises:
        DocumentError: if it is none of these, or a field of it is bad.
    """
    if _megatron_arguments(fields):
        return read_megatron(_megatron_arguments(fields), setting, source=source)
    own = with_bases(fields, setting.folder)
    fields = with_numbers(own)
    if is_accelerate(fields):
        return read_accelerate(fields, setting, text=text)
    leaves = leaves_of(fields)
    table = _read_or_refused(leaves, source)
    if table is not None:
        return read_format(table, fields, setting)
    if is_deepspeed(fields):
        return read_deepspeed(fields, setting)
    stray = _stray_mark(leaves)
    if stray is not None:
        raise DocumentError(
            "is a key of Megatron's in a section of no framework that is read",
            field=stray,
            value=leaves[stray],
            remedy="write it at the top, or under model as NeMo and Megatron-Bridge have it",
        )
    if not _has_own(fields):
        raise DocumentError(
            "has no key of a format that is read",
            field=source,
            value=", ".join(map(str, list(fields)[:6])),
            remedy=_REMEDY,
        )
    nested = own.get("strategy")
    chosen = nested if isinstance(nested, dict) else own
    return TrainingConfig(
        format="meshwright", strategy=Strategy.from_fields(chosen, source=source), job={}
    )


def _stray_mark(leaves: Mapping[str, Any]) -> str | None:
    """Return a path that ends in a degree of Megatron's."""
    return next((path for path in leaves if path.rpartition(".")[2] in _MARKS), None)


def _megatron_arguments(fields: Mapping[str, Any]) -> str:
    """Return the arguments of a mapping by flags, of Megatron's test recipes, '' if it is none."""
    own = fields.get("MODEL_ARGS", fields)
    if not isinstance(own, Mapping):
        return ""
    words: list[str] = []
    for name, value in own.items():
        if not str(name).startswith("--") or value is False or value is None:
            continue
        given = [] if value is True else value if isinstance(value, list) else [value]
        words += [str(name), *(shlex.quote(str(one)) for one in given)]
    return " ".join(words)


def _text(path: Path) -> str:
    content = file_content(
        path, bytes_limit=DOCUMENT_BYTES_LIMIT, too_large="give the configuration alone"
    )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DocumentError(
            "is not UTF-8 text", field=str(path), value=f"byte {error.start}", remedy=_REMEDY
        ) from None
