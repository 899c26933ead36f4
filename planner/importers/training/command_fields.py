"""Fields of a command: the flags and the `key=value` arguments of a launch script, as a mapping.

`--micro_train_batch_size 4` gives `micro_train_batch_size`, and `actor.strategy=fsdp` a key of a
section. `program` is the command that takes them, where its name says which framework it is of.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from planner.importers.training.scalar_text import scalar
from planner.importers.training.shell_words import END, ShellWords

_OVERRIDE = re.compile(r"[+~]{0,2}([A-Za-z_]\w*(?:\.[\w-]+)*)=(.*)", re.DOTALL)
_FLAG = re.compile(r"--([A-Za-z][\w.-]*)(?:=(.*))?", re.DOTALL)
_PROGRAM = re.compile(r"\b(?:megatron|swift) (?:sft|pt|rlhf)\b|\bllamafactory-cli train\b")
_DEPTH_LIMIT = 12
# Flags of launchers, which say where ranks run.
_LAUNCHERS = frozenset(
    [
        "nproc_per_node",
        "nproc-per-node",
        "nnodes",
        "node_rank",
        "master_addr",
        "master_port",
        "module",
        "standalone",
        "rdzv_backend",
        "rdzv_endpoint",
        "rdzv_id",
        "num_processes",
        "num_machines",
        "machine_rank",
        "main_process_ip",
        "main_process_port",
        "config_path",
        "config_name",
        "hostfile",
        "num_gpus",
        "max_restarts",
        "tee",
    ]
)


def command_fields(given: ShellWords, text: str) -> dict[str, Any]:
    """Return what the arguments say; the last of a repeated one holds.

    What is set as a variable and used as one is no argument.
    """
    variables = {
        name for name in given.variables if re.search(rf"\$\{{?{name}\b|\(\([^\n]*\b{name}\b", text)
    }
    fields: dict[str, Any] = {}
    name: str | None = None
    for word in given.words:
        flag, override = _FLAG.fullmatch(word), _OVERRIDE.fullmatch(word)
        if flag:
            name = flag[1].replace("-", "_")
            _put(fields, name, True if flag[2] is None else scalar(flag[2]))
            name = None if flag[2] is not None else name
        elif word == END or word.endswith(".py"):
            name = None  # the program, after the launcher's flags
        elif name is not None and not (override and "." in override[1]):
            _add(fields, name, scalar(word))
        elif override and not override[1].isupper() and override[1] not in variables:
            _put(fields, override[1], scalar(override[2]))
            name = None
    fields = {
        name: value
        for name, value in fields.items()
        if name not in _LAUNCHERS and not name.startswith("xla_")  # of a compiler
    }
    program = _PROGRAM.search(text)
    return fields if program is None else {**fields, "program": program[0]}


def _section(fields: dict[str, Any], parts: Sequence[str]) -> dict[str, Any]:
    for part in parts:
        inner = fields.get(part)
        if not isinstance(inner, dict):
            inner = fields[part] = {}
        fields = inner
    return fields


def _put(fields: dict[str, Any], path: str, value: Any) -> None:
    *sections, last = path.split(".")[:_DEPTH_LIMIT]
    section = _section(fields, sections)
    if not isinstance(section.get(last), dict):  # engine=NAME beside engine.KEY=VALUE
        section[last] = value


def _add(fields: dict[str, Any], path: str, value: Any) -> None:
    """Put a word after a flag: its value, or one more of a list."""
    *sections, last = path.split(".")[:_DEPTH_LIMIT]
    section = _section(fields, sections)
    before = section.get(last)
    if before is True:
        section[last] = value
    else:
        section[last] = [*before, value] if isinstance(before, list) else [before, value]
