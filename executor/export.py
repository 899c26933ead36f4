"""Export: a trained model as one folder in Hugging Face's form, from any layout.

Tensors are gathered one after another, and the ranks that share a stage take turns in keeping a
file's worth of them, so that no rank ever holds more than that beside its own part. All functions
are collective calls, and an error on one rank is raised on all.
"""

from __future__ import annotations

import copy
import json
import shutil
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import distributed, nn

from executor.adapter_folder import ADAPTER_FILE
from executor.agreement import everyone, from_first_rank, together
from executor.apply.materialise import plain_name, unsplit_name
from executor.apply.whole_tensor import whole_tensor
from executor.errors import WeightFilesError, WeightsError
from executor.mesh import PIPELINE, RankMesh
from executor.models.adapters import ADAPTER, Adapters, exported_name, is_adapter
from executor.models.declaration import ModelDeclaration
from executor.models.quantization import PARTS
from executor.models.quantized_linear import quantized_linears
from executor.shared_folder import check_shared
from executor.tensor_source import INDEX_FILE, SINGLE_FILE

MAX_FILE_BYTES = 5 * 10**9  # as transformers' save_pretrained has it
_FORMATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
# What transformers' tokenizers keep beside the weights.
_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "chat_template.jinja",
    "generation_config.json",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What a script's model says of itself, and where its weights came from.

    `config` and `generation_config` are transformers' own, for a model of one of its classes.
    """

    class_name: str = ""
    config: Any = None
    generation_config: Any = None
    folder: Path | None = None
    adapters: Adapters | None = None

    @staticmethod
    def of(built: nn.Module, folder: Path | None, adapters: Adapters | None) -> Origin:
        """Return the origin of the model that a script built."""
        config = getattr(built, "config", None)
        is_known = hasattr(config, "save_pretrained")
        return Origin(
            class_name=type(built).__name__,
            config=config if is_known else None,
            generation_config=getattr(built, "generation_config", None) if is_known else None,
            folder=folder,
            adapters=adapters,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """A rank's part of a trained model, and what is known of the whole."""

    model: nn.Module
    declaration: ModelDeclaration
    mesh: RankMesh
    device: torch.device
    origin: Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A file of tensors, under a name of its own until it is known how many there are."""

    stage: int
    index: int
    path: str
    names: tuple[str, ...]
    content_bytes: int


def export_weights(
    directory: Path,
    exported: Exported,
    *,
    dtype: torch.dtype = torch.float32,
    max_file_bytes: int = MAX_FILE_BYTES,
) -> None:
    """Write the model to `directory`, in place of what was exported there before.

    Raises:
        WeightsError: if it cannot be written.
    """
    _check(directory, exported, dtype)
    check_shared(directory)
    failed = partial(_not_written, directory)
    draft = directory / from_first_rank(f".export-{uuid.uuid4().hex[:8]}")
    try:
        together(lambda: draft.mkdir(parents=True, exist_ok=True), failed)
        mine = _write_parts(draft, exported, dtype=dtype, max_file_bytes=max_file_bytes)
        parts = [part for parts in everyone(mine) for part in parts]
        together(
            lambda: _commit(directory, draft, parts, origin=exported.origin, dtype=dtype), failed
        )
    finally:
        if distributed.get_rank() == 0:
            shutil.rmtree(draft, ignore_errors=True)


def export_adapters(
    directory: Path, exported: Exported, adapters: Adapters, *, dtype: torch.dtype = torch.float32
) -> None:
    """Write the adapters alone to `directory`, as PEFT reads them.

    Raises:
        WeightsError: if they cannot be written.
    """
    _check(directory, exported, dtype)
    check_shared(directory)
    place, _ = _place_in_stage(exported.mesh)
    kept: dict[str, torch.Tensor] = {}
    for name, tensor in _held(exported):
        if is_adapter(name):
            whole = whole_tensor(tensor, exported.device)
            if place == 0:
                kept[exported_name(name)] = whole.to(device="cpu", dtype=dtype).contiguous()
    tensors = {name: tensor for part in everyone(kept) for name, tensor in part.items()}

    def write() -> None:
        if distributed.get_rank() == 0:
            save_file(tensors, directory / ADAPTER_FILE, metadata={"format": "pt"})
            adapters.write_config(directory, exported.origin.folder)

    together(write, partial(_not_written, directory))


def _write_parts(
    draft: Path, exported: Exported, *, dtype: torch.dtype, max_file_bytes: int
) -> list[_Part]:
    """Gather this stage's tensors and write the files that are this rank's to keep."""
    writer = _PartWriter(draft, exported, dtype=dtype)
    content_bytes = 0
    for name, tensor in _held(exported):
        if is_adapter(name) or writer.is_scale(name):
            continue
        size = writer.written_bytes(name, tensor)
        if content_bytes and content_bytes + size > max_file_bytes:
            writer.close()
            content_bytes = 0
        content_bytes += size
        writer.take(name, tensor)
    writer.close()
    return together(writer.written, partial(_not_written, draft.parent))


class _PartWriter:
    """Writes every n-th of a stage's files, n ranks sharing the stage."""

    def __init__(self, draft: Path, exported: Exported, *, dtype: torch.dtype) -> None:
        self._draft = draft
        self._exported = exported
        self._dtype = dtype
        self._place, self._ranks = _place_in_stage(exported.mesh)
        self._index = 0
        self._kept: dict[str, torch.Tensor] = {}
        self._written: list[_Part] = []
        self._adapters = {name: item for name, item in _held(exported) if is_adapter(name)}
        self._packed = {
            plain_name(f"{path}.weight"): linear
            for path, linear in quantized_linears(exported.model)
        }
        self._problem: OSError | RuntimeError | None = None

    def take(self, name: str, tensor: torch.Tensor) -> None:
        """Gather a tensor, and keep it if the file that it belongs to is this rank's."""
        whole = self._gathered(name, tensor)
        if self._index % self._ranks != self._place:
            return
        cast = whole.to(device="cpu", dtype=self._format(name, tensor))
        for file_name, piece in self._exported.declaration.file_names.written(name, cast):
            # Files have no views: pieces and parameters get memory of their own.
            self._kept[file_name] = piece.clone(memory_format=torch.contiguous_format)

    def is_scale(self, name: str) -> bool:
        """Return whether a tensor is written as part of a weight that is packed."""
        home, _, part = name.rpartition(".")
        return part != "weight" and f"{home}.weight" in self._packed and part in PARTS

    def written_bytes(self, name: str, tensor: torch.Tensor) -> int:
        """Return what a tensor takes in a file."""
        linear = self._packed.get(name)
        count = tensor.numel() if linear is None else linear.in_features * linear.out_features
        return count * self._format(name, tensor).itemsize

    def _format(self, name: str, tensor: torch.Tensor) -> torch.dtype:
        is_cast = tensor.is_floating_point() or name in self._packed
        return self._dtype if is_cast else tensor.dtype

    def _gathered(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """Return a whole tensor, unpacked, with what its adapters add to it."""
        whole = whole_tensor(tensor, self._exported.device)
        if (linear := self._packed.get(name)) is not None:
            held = {part: getattr(linear, part) for part in PARTS}
            device = self._exported.device
            whole = linear.unpacked(
                {part: whole_tensor(one, device) for part, one in held.items() if one is not None}
            )
        adapters = self._exported.origin.adapters
        home, found, _ = name.rpartition(".base_layer.weight")
        names = [f"{home}.{kind}.{ADAPTER}.weight" for kind in ("lora_A", "lora_B")]
        if adapters is None or not found or names[0] not in self._adapters:
            return whole
        first, second = (whole_tensor(self._adapters[n], self._exported.device) for n in names)
        return adapters.merged(home, whole, first, second)

    def close(self) -> None:
        """Write what was kept. Errors wait until all ranks have gathered all tensors."""
        if self._kept and self._problem is None:
            try:
                stage = self._exported.mesh.stage
                self._written.append(_save(self._draft, stage, self._index, self._kept))
            except (OSError, RuntimeError) as error:
                self._problem = error
        self._kept = {}
        self._index += 1

    def written(self) -> list[_Part]:
        """Return the files.

        Raises:
            OSError, RuntimeError: if one could not be written.
        """
        if self._problem is not None:
            raise self._problem
        return self._written


def _held(exported: Exported) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield parameters and kept buffers by name, each weight of the unsplit model once."""
    model, declaration = exported.model, exported.declaration
    for name, parameter in model.named_parameters():
        is_copy = declaration.tied_embeddings and plain_name(name) == declaration.head_weight
        if not is_copy:  # the first stage has it
            yield unsplit_name(name, declaration), parameter
    passing = {
        f"{path}.{name}".lstrip(".")
        for path, module in model.named_modules()
        for name in module._non_persistent_buffers_set  # noqa: SLF001 - torch has no other name
    }
    for name, buffer in model.named_buffers():
        if name not in passing:
            yield unsplit_name(name, declaration), buffer


def _place_in_stage(mesh: RankMesh) -> tuple[int, int]:
    """Return this rank's place among those that hold parts of its stage, and how many they are."""
    ranks = mesh.world.mesh.reshape(mesh.degrees[PIPELINE], -1)[mesh.stage].tolist()
    return ranks.index(distributed.get_rank()), len(ranks)


def _save(draft: Path, stage: int, index: int, tensors: dict[str, torch.Tensor]) -> _Part:
    path = f"{stage:05d}-{index:05d}.safetensors"
    save_file(tensors, draft / path, metadata={"format": "pt"})
    return _Part(
        stage=stage,
        index=index,
        path=path,
        names=tuple(tensors),
        content_bytes=sum(item.numel() * item.element_size() for item in tensors.values()),
    )


def _commit(
    directory: Path, draft: Path, parts: list[_Part], *, origin: Origin, dtype: torch.dtype
) -> None:
    """Let what was written be what the folder holds; only rank 0 does anything."""
    if distributed.get_rank() != 0:
        return
    for old in (*directory.glob("model-*-of-*.safetensors"), directory / SINGLE_FILE):
        old.unlink(missing_ok=True)
    (directory / INDEX_FILE).unlink(missing_ok=True)
    ordered = sorted(parts, key=lambda part: (part.stage, part.index))
    count = len(ordered)
    names = [f"model-{place:05d}-of-{count:05d}.safetensors" for place in range(1, count + 1)]
    if count == 1:
        names = [SINGLE_FILE]
    for part, name in zip(ordered, names, strict=True):
        (draft / part.path).rename(directory / name)
    if count > 1:
        total = sum(part.content_bytes for part in ordered)
        weight_map = {
            tensor: name for part, name in zip(ordered, names, strict=True) for tensor in part.names
        }
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        (directory / INDEX_FILE).write_text(json.dumps(index, indent=2), encoding="utf-8")
    _write_beside(directory, origin, dtype)


def _write_beside(directory: Path, origin: Origin, dtype: torch.dtype) -> None:
    if origin.config is not None:
        config = copy.deepcopy(origin.config)
        config.architectures, config.dtype = [origin.class_name], dtype
        if hasattr(config, "quantization_config"):  # what is written is unpacked
            del config.quantization_config
        config.save_pretrained(directory)
    if origin.generation_config is not None:
        origin.generation_config.save_pretrained(directory)
    for name in _TOKENIZER_FILES if origin.folder is not None else ():
        with suppress(FileNotFoundError):
            shutil.copyfile(origin.folder / name, directory / name)  # type: ignore[operator]


def _check(directory: Path, exported: Exported, dtype: torch.dtype) -> None:
    folder = exported.origin.folder
    if folder is not None and folder.resolve() == directory.resolve():
        raise WeightsError(
            "is the folder that the weights were read from",
            field="directory",
            value=str(directory),
            remedy="export to another folder",
        )
    if dtype not in _FORMATS:
        raise WeightsError(
            "is not a format that weights are exported in",
            field="dtype",
            value=str(dtype),
            remedy="use torch.float32, torch.bfloat16 or torch.float16",
        )


def _not_written(directory: Path, reason: str) -> WeightFilesError:
    return WeightFilesError(
        f"cannot be written: {reason}",
        field="directory",
        value=str(directory),
        remedy="give a directory with room that every rank can write to",
    )
