"""Reference: the page of the keys of training files, made of the tables that read them.

python -m planner.importers.training.formats.reference > docs/training-keys.md
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping

from planner.importers.training.format import KNOWN_ANYWHERE, UNPRICED_ANYWHERE, Format
from planner.importers.training.formats.accelerate import PLUGIN_KEYS
from planner.importers.training.formats.deepspeed_keys import DEEPSPEED_KEYS
from planner.importers.training.formats.megatron_keys import BESIDE, MODEL
from planner.importers.training.formats.registry import FORMATS
from planner.importers.training.formats.torchtitan_keys import TORCHTITAN_KEYS
from planner.importers.training.megatron_beside import GROUPS
from planner.importers.training.megatron_flags import KNOWN

_HEAD = """# Keys of training files

Every key of a training file that has a meaning here, made of the tables that read them by
`python -m planner.importers.training.formats.reference`. Keys that are *read* set the strategy or
the job, or are held against the model. Those *not priced* are told with what that means where they
are given, and those *refused* end with a remedy. Keys *without influence* change neither time nor
memory of a step. A section among them (`scheduler`, `data`) is told with its keys, since none of
them is looked at; any other key is told as not read.

Megatron-Core's own fields (`tensor_model_parallel_size`, `bias_dropout_fusion`, ...), which several
frameworks take in sections of theirs, stand under Megatron-Core alone.
"""


def page() -> str:
    """Return the whole page in Markdown."""
    return "\n".join([_HEAD, *(line for part in _parts() for line in part)])


def _parts() -> Iterator[list[str]]:
    yield _part(
        "In any file", {"Not priced": UNPRICED_ANYWHERE, "Without influence": KNOWN_ANYWHERE}
    )
    yield _part("Megatron-Core's fields", {"Read": MODEL, "Without influence": BESIDE.split()})
    flags = {f"Without influence: {title}": names for title, names in GROUPS.items()}
    yield _part("Megatron-LM's flags", {"Read": (flag[2:] for flag in KNOWN), **flags})
    for table in (TORCHTITAN_KEYS, DEEPSPEED_KEYS, PLUGIN_KEYS, *FORMATS):
        yield _part(_title(table), _of_table(table))


def _title(table: Format) -> str:
    title = table.title[0].upper() + table.title[1:]
    return f"{title}, its plugins" if table is PLUGIN_KEYS else f"{title} (`{table.name}`)"


def _of_table(table: Format) -> dict[str, Iterable[str]]:
    shared = {*MODEL, *BESIDE.split()}
    read = [key for key in table.sets if key.rpartition(".")[2] not in MODEL]
    beside = [key for key in table.beside.split() if key.rpartition(".")[2] not in shared]
    return {
        "Read": read,
        "Not priced": table.unpriced,
        "Refused": table.refused,
        "Without influence": {key.removesuffix(".*") for key in beside},
    }


def _part(title: str, kinds: Mapping[str, Iterable[str]]) -> list[str]:
    lines = [f"## {title}", ""]
    for kind, keys in kinds.items():
        if isinstance(keys, Mapping) and kind != "Read":
            told = [f"- `{key}`: {meaning}" for key, meaning in sorted(keys.items())]
            lines += [f"{kind}:", "", *told, ""] if told else []
        elif names := ", ".join(f"`{key}`" for key in sorted(keys)):
            lines += [*textwrap.wrap(f"{kind}: {names}.", 116, break_on_hyphens=False), ""]
    return lines


if __name__ == "__main__":
    sys.stdout.write(page())
