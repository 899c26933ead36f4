"""Training configurations of other software as strategies, whichever they are.

Recognised are torchtitan's TOML and Python, Megatron-LM's arguments in a text, a shell script or
YAML, Megatron-Bridge's overrides, DeepSpeed's JSON, Accelerate's YAML and the JSON of Hugging
Face's `TrainingArguments`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from planner.errors import DocumentError
from planner.importers.training_bridge import is_bridge, read_bridge
from planner.importers.training_config import Setting, TrainingConfig
from planner.importers.training_deepspeed import is_deepspeed, read_deepspeed
from planner.importers.training_hugging_face import (
    is_accelerate,
    is_trainer,
    read_accelerate,
    read_trainer,
)
from planner.importers.training_megatron import read_megatron
from planner.importers.training_nemo import is_nemo, read_nemo
from planner.importers.training_torchtitan import read_torchtitan_python, read_torchtitan_toml
from planner.schema.document import DOCUMENT_BYTES_LIMIT, parse_fields
from planner.schema.files import file_content
from planner.schema.strategy import Strategy

_FLAG = re.compile(r"(?:^|\s)--[a-z][a-z0-9-]+", re.MULTILINE)
_FUNCTION = re.compile(r"(.+\.py):([A-Za-z_]\w*)")
_REMEDY = (
    "give a strategy or plan, torchtitan's TOML or Python, Megatron's arguments, DeepSpeed's JSON "
    "or Accelerate's YAML"
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
        text, setting, source=str(file), suffix=file.suffix.lower(), function=function
    )


def is_foreign(fields: Mapping[str, Any]) -> bool:
    """Return whether a mapping is a configuration of other software."""
    return (
        is_deepspeed(fields)
        or is_accelerate(fields)
        or is_trainer(fields)
        or bool(_megatron_arguments(fields))
        or is_nemo(fields)
    )


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
        return read_torchtitan_python(text, setting, source=source, function=function)
    if suffix in {".json", ".yaml", ".yml"}:
        yaml = suffix != ".json"
        fields = parse_fields(text.encode(), source=source, yaml_allowed=yaml)
        return config_from_fields(fields, setting, source=source, text=text)
    if is_bridge(text):
        return read_bridge(text, setting, source=source)
    if _FLAG.search(text):
        return read_megatron(text, setting, source=source)
    raise DocumentError("is in no format that is read", field=source, remedy=_REMEDY)


def config_from_fields(
    fields: Mapping[str, Any], setting: Setting, *, source: str, text: str = ""
) -> TrainingConfig:
    """Return the strategy that a mapping says: ours, DeepSpeed's, Accelerate's or another's.

    Raises:
        DocumentError: if it is none of these, or a field of it is bad.
    """
    if is_deepspeed(fields):
        return read_deepspeed(fields, setting)
    if is_accelerate(fields):
        return read_accelerate(fields, setting, text=text)
    if is_trainer(fields):
        return read_trainer(fields, setting)
    if _megatron_arguments(fields):
        return read_megatron(_megatron_arguments(fields), setting, source=source)
    if is_nemo(fields):
        return read_nemo(fields, setting)
    nested = fields.get("strategy")
    chosen = nested if isinstance(nested, dict) else fields
    return TrainingConfig(
        format="meshwright", strategy=Strategy.from_fields(chosen, source=source), job={}
    )


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
