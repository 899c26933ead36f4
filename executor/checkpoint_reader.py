"""Checkpoint reader: torch's, which holds each tensor that it reads to its sum.

Its metadata can name nothing that runs: torch keeps the metadata as a pickle, which may call any
function while it is read.
"""

from __future__ import annotations

import io
import pickle
import zlib
from pathlib import Path
from typing import IO, Any

from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata

from executor.checkpoint_record import CheckpointRecord, not_as_written

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
    """Reads the step of `record` in `directory`, each part of a file once."""

    def __init__(self, directory: Path, record: CheckpointRecord) -> None:
        super().__init__(directory / record.folder)
        self._directory, self._record = directory, record

    def _slice_file(self, file: Any, sinfo: Any) -> IO[bytes]:
        """Return the bytes of a tensor.

        Raises:
            CheckpointError: if they are not those that were written.
        """
        file.seek(sinfo.offset)
        content: bytes = file.read(sinfo.length)
        sums = self._record.files[sinfo.relative_path].tensors
        if sums and zlib.crc32(content) != sums.get(sinfo.offset):
            raise not_as_written(self._directory, sinfo.relative_path)
        return io.BytesIO(content)

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
