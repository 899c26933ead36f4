"""Accelerate: the strategy that its YAML says, with the comments beside its keys.

Keys are of Accelerate 1.15.0, `commands/config/config_args.py`. A file does not say the micro-
batch: it
is what was given beside the file, what a comment `# per_device_train_batch_size: 2` says, or 1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from planner.errors import DocumentError
from planner.importers.fields import Fields
from planner.importers.training.accelerate_plugins import PLUGINS, read_plugin
from planner.importers.training.config import Setting, TrainingConfig
from planner.importers.training.format import leaves_of, words_of
from planner.importers.training.formats.accelerate import ACCELERATE, PLUGIN_KEYS
from planner.importers.training.scalar_text import scalar
from planner.importers.training.settings import read_format

_COMMENT = re.compile(
    r"^#\s*(per_device_train_batch_size|gradient_accumulation_steps|gradient_checkpointing):"
    r"\s*(\d{1,9}|true|false)\s*$",
    re.MULTILINE,
)


def is_accelerate(fields: Mapping[str, Any]) -> bool:
    """Return whether the fields are a file of `accelerate config`."""
    return "distributed_type" in fields


def read_accelerate(
    fields: Mapping[str, Any], setting: Setting, *, text: str = ""
) -> TrainingConfig:
    """Return the strategy and the job of an Accelerate file; `text` is searched for comments.

    Raises:
        DocumentError: naming the key, its value and the remedy.
    """
    said = {name: scalar(value) for name, value in _COMMENT.findall(text)}
    kind = str(fields.get("distributed_type", "")).upper()
    if kind in PLUGINS:
        return _of_plugin(fields, setting, kind, said)
    if not ACCELERATE.recognises(leaves_of(fields)):
        raise DocumentError(
            "is not read",
            field="distributed_type",
            value=kind,
            remedy=f"use FSDP, MULTI_GPU, {' or '.join(PLUGINS)}",
        )
    return read_format(ACCELERATE, {**fields, **said}, setting)


def _of_plugin(
    fields: Mapping[str, Any], setting: Setting, kind: str, said: Mapping[str, object]
) -> TrainingConfig:
    ranks = Fields(fields).size("num_processes", setting.device_count)
    if ranks != setting.device_count:
        raise DocumentError(
            f"is not the number of the cluster's devices, {setting.device_count}",
            field="num_processes",
            value=ranks,
            remedy="give the cluster that the file is for",
        )
    given = setting.micro_batch_size or said.get("per_device_train_batch_size")
    micro = given if isinstance(given, int) else 1
    unknown = words_of(PLUGIN_KEYS, fields).said
    found = read_plugin(fields, setting, kind=kind, micro_batch_size=micro)
    unsaid = () if given else ("the file says no per_device_train_batch_size: 1",)
    return replace(found, assumptions=(*unsaid, *unknown, *found.assumptions))
