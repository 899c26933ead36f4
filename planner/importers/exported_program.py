"""Archives of torch.export (.pt2) -> a graph of measured blocks, by their JSON part alone.

A .pt2 is a ZIP file; `*/models/model.json` in it lists the operators with the sizes of all
tensors. Nothing else of it is opened, nothing is extracted, and nothing is unpickled. Blocks are
told apart by the list of modules that has most parameters, as `meshwright trace` does.

Source: torch 2.13, `torch/_export/serde/schema.py` and `torch/export/pt2_archive/constants.py`.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from planner.errors import DocumentError, UnsupportedModelError
from planner.importers.exported_parts import Part, measured
from planner.importers.exported_tensors import Tensors
from planner.schema.files import check_kind, readable
from planner.schema.model import BlockRun, ModelGraph

MODEL_BYTES_LIMIT = 64 * 2**20
_ENTRY_LIMIT = 200_000
_NODE_LIMIT = 500_000
_MODEL = re.compile(r"(?:[^/\\]+/)?models/model\.json")
_OF_LIST = re.compile(r"(.+?)\.(\d+)\.")
_ASSUMED = (
    "what autograd keeps was derived from the exported operators, by rules: `meshwright trace` "
    "records it instead"
)


def graph_from_archive(path: Path, *, name: str) -> ModelGraph:
    """Return the graph of measured blocks that the archive's operators make.

    Raises:
        DocumentError: if it is no such archive, is too large, or is cut short.
        UnsupportedModelError: if it has no list of blocks, or sizes that are not known.
    """
    return graph_from_program(_program(path), name=name, source=str(path))


def graph_from_program(program: object, *, name: str, source: str) -> ModelGraph:
    """Return the graph of the program in a `model.json`.

    Raises:
        DocumentError: if it is no program.
        UnsupportedModelError: as `graph_from_archive`.
    """
    try:
        module = _at(program, "graph_module")
        tensors = Tensors(_at(module, "graph", "tensor_values"), _at(module, "signature"))
        nodes = _at(module, "graph", "nodes")
        return _graph(nodes[:_NODE_LIMIT], tensors, name)
    except (TypeError, KeyError, AttributeError, IndexError, ValueError, ZeroDivisionError):
        raise DocumentError(
            "is not a program of torch.export that can be read",
            field=source,
            remedy="export it with torch.export.save of torch 2.9 or later, or use `meshwright "
            "trace`",
        ) from None


def _program(path: Path) -> object:
    """Return what the archive's model.json holds.

    A size is believed only as far as that many bytes are read.
    """
    with readable(path):
        check_kind(path.stat().st_mode, path, pipes=False)
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            found = [entry for entry in entries if _MODEL.fullmatch(entry.filename)]
            if len(entries) > _ENTRY_LIMIT or len(found) != 1:
                raise DocumentError(
                    f"holds {len(found)} programs, and one is needed",
                    field=str(path),
                    remedy="give what torch.export.save wrote; anything pickled stays closed",
                )
            with archive.open(found[0]) as file:
                content = file.read(MODEL_BYTES_LIMIT + 1)
    except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise DocumentError(
            f"is not a readable archive: {error}",
            field=str(path),
            remedy="give what torch.export.save wrote; is the file complete?",
        ) from None
    if len(content) > MODEL_BYTES_LIMIT:
        raise DocumentError(
            f"has a program larger than {MODEL_BYTES_LIMIT} bytes",
            field=str(path),
            remedy="export fewer layers, or use `meshwright trace`",
        )
    try:
        program: object = json.loads(content)
    except (ValueError, RecursionError):
        raise DocumentError(
            "has a model.json that is not valid JSON", field=str(path), remedy="export it again"
        ) from None
    return program


def _at(value: Any, *path: str) -> Any:
    for key in path:
        value = value[key]
    return value


def _graph(nodes: list[Mapping[str, Any]], tensors: Tensors, name: str) -> ModelGraph:
    home = _list_of_blocks(tensors)
    parts: dict[int | str, Part] = {"embedding": Part(), "head": Part()}
    for node in nodes:
        block = _block_of(node, home)
        end = "embedding" if len(parts) == 2 else "head"
        parts.setdefault(end if block is None else block, Part()).nodes.append(node)
    blocks = [part for key, part in parts.items() if isinstance(key, int)]
    tokens, sequence = tensors.tokens()
    shapes = [measured(part, tensors, tokens=tokens, sequence=sequence) for part in blocks]
    ends = [
        measured(parts[key], tensors, tokens=tokens, sequence=sequence)
        for key in ("embedding", "head")
    ]
    runs: list[tuple[Any, int]] = []
    for shape in shapes:
        if runs and runs[-1][0] == shape:
            runs[-1] = (shape, runs[-1][1] + 1)
        else:
            runs.append((shape, 1))
    return ModelGraph(
        name=name,
        architecture="exported",
        hidden_size=shapes[0].input_size,
        vocabulary_size=ends[1].output_size,
        maximum_sequence_length=sequence,
        runs=tuple(BlockRun(measured=shape, block_count=count) for shape, count in runs),
        measured_embedding=ends[0],
        measured_head=ends[1],
        assumptions=(_ASSUMED,),
    )


def _list_of_blocks(tensors: Tensors) -> str:
    """Return the path of the list of modules with most parameters.

    Raises:
        UnsupportedModelError: if no parameter belongs to a list.
    """
    sizes: Counter[str] = Counter()
    for parameter, path in tensors.parameters.items():
        match = _OF_LIST.match(path)
        if match is not None:
            sizes[match[1]] += tensors.numel(parameter)
    if not sizes:
        raise UnsupportedModelError(
            "has no list of modules, which blocks would be",
            field="graph_module",
            remedy="put the layers into a ModuleList or Sequential, or write a model graph",
        )
    return sizes.most_common(1)[0][0]


def _block_of(node: Mapping[str, Any], home: str) -> int | None:
    """Return which block of the list a node belongs to, by the stack of modules it ran in."""
    stack = str(node.get("metadata", {}).get("nn_module_stack", ""))
    for frame in stack.split(";"):
        path = frame.split(",")[1] if "," in frame else ""
        head, _, last = path.rpartition(".")
        if head == home and last.isdigit():
            return int(last)
    return None
