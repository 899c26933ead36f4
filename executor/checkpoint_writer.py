"""Checkpoint writer: torch's, which sums what it writes, so that nothing is read back for that."""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemWriter

from executor.checkpoint_record import FileSum


class SummedFiles(FileSystem):
    """Files of this process, whose sums are known once they are closed."""

    def __init__(self) -> None:
        self.sums: dict[str, FileSum] = {}

    @contextmanager
    def create_stream(
        self, path: str | os.PathLike[str], mode: str
    ) -> Generator[io.IOBase, None, None]:
        """Open a file; one that is written is summed, from its beginning to its end."""
        with super().create_stream(path, mode) as stream:
            if mode != "wb":
                yield stream
                return
            summed = _Summed(stream)
            yield summed
            self.sums[Path(path).name] = summed.sum()

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        """Give a file that was written another name."""
        super().rename(path, new_path)
        self.sums[Path(new_path).name] = self.sums.pop(Path(path).name)


class CheckpointWriter(FileSystemWriter):
    """Writes what `trainer.save()` saves; `files` knows the sums of what this rank wrote."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.files = SummedFiles()
        self.fs = self.files


class _Summed(io.IOBase):
    """A file that is only ever appended to.

    torch asks where it is before and after each tensor, and of no other file than those of tensors.
    Source: `_write_item` in `torch/distributed/checkpoint/filesystem.py` of torch 2.13.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self._crc32, self._size_bytes = 0, 0
        self._begun = 0
        self._tensors: dict[int, int] = {}

    def write(self, content: Any) -> int:
        """Append `content`."""
        self._crc32 = zlib.crc32(content, self._crc32)
        if self._tensors:
            self._tensors[self._begun] = zlib.crc32(content, self._tensors[self._begun])
        self._size_bytes += memoryview(content).nbytes
        return int(self._file.write(content))

    def tell(self) -> int:
        """Return the size so far, where the sum of a tensor begins."""
        self._begun = self._size_bytes
        self._tensors.setdefault(self._begun, 0)
        return self._size_bytes

    def flush(self) -> None:
        if not self._file.closed:
            self._file.flush()

    def fileno(self) -> int:
        return int(self._file.fileno())

    def close(self) -> None:
        self._file.close()
        super().close()

    def sum(self) -> FileSum:
        tensors = {begun: crc for begun, crc in self._tensors.items() if begun < self._size_bytes}
        return FileSum(size_bytes=self._size_bytes, crc32=self._crc32, tensors=tensors)
