"""Checkpoint reader: torch's, but its metadata can name nothing that runs.

torch keeps the metadata as a pickle, which may call any function while it is read.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata

_ALLOWED = {
    "torch.distributed.checkpoint.metadata": {
        "BytesStorageMetadata",
        "ChunkStorageMetadata",
        "Metadata",
        "MetadataIndex",
        "StorageMeta",
        "TensorProperties",
        "TensorStorageMetadata",
        "_MEM_FORMAT_ENCODING",
    },
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch.serialization": {"_get_layout"},
    "torch": {
        "Size",
        "bfloat16",
        "bool",
        "float16",
        "float32",
        "float64",
        "int16",
        "int32",
        "int64",
        "int8",
        "uint8",
    },
    "pathlib": {"PosixPath", "PurePosixPath", "WindowsPath", "PureWindowsPath"},
    "pathlib._local": {"PosixPath", "PurePosixPath"},
    "collections": {"OrderedDict"},
}
_METADATA_BYTES_LIMIT = 2**30


class CheckpointReader(FileSystemReader):
    """Reads what `trainer.save()` wrote."""

    def read_metadata(self, *_arguments: Any, **_named: Any) -> Metadata:
        """Return the metadata.

        Raises:
            UnpicklingError: if it is none, or names what has no place in one.
        """
        with self.fs.create_stream(self._get_metadata_path(), "rb") as file:
            content = file.read(_METADATA_BYTES_LIMIT)
        metadata = _MetadataUnpickler(io.BytesIO(content)).load()
        if not isinstance(metadata, Metadata):
            raise pickle.UnpicklingError("no metadata of a checkpoint")
        if metadata.storage_meta is None:
            metadata.storage_meta = StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata

    def tensors(self) -> dict[str, TensorStorageMetadata]:
        """Return shapes and formats of all tensors, by key."""
        items = self.read_metadata().state_dict_metadata.items()
        return {key: item for key, item in items if isinstance(item, TensorStorageMetadata)}


class _MetadataUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name not in _ALLOWED.get(module, ()):
            raise pickle.UnpicklingError(f"names {module}.{name}")
        return super().find_class(module, name)
