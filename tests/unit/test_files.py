"""Files: what can be read has an end, and comes whole or not at all."""

import os
from pathlib import Path

import pytest

from planner.errors import DocumentError
from planner.importers.exported_program import graph_from_archive
from planner.importers.measured_runs import run_count
from planner.schema import files
from planner.schema.document import read_fields
from planner.schema.files import file_content


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """A named pipe that nobody has opened."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def test_a_device_without_an_end_is_no_file():
    with pytest.raises(DocumentError, match=r"/dev/zero: is not a file \(got a device\)"):
        read_fields(Path("/dev/zero"))


def test_a_pipe_that_stays_silent_is_refused(pipe, monkeypatch):
    monkeypatch.setattr(files, "PIPE_WAIT_SECONDS", 0.0)
    with pytest.raises(DocumentError, match="a pipe to which nothing was written"):
        read_fields(pipe)


def test_what_is_written_to_a_pipe_is_read_to_its_end():
    out, into = os.pipe()
    os.write(into, b'{"global_batch_size": 8}')
    os.close(into)
    assert read_fields(Path(f"/dev/fd/{out}")) == {"global_batch_size": 8}
    os.close(out)


def test_a_pipe_is_read_no_further_than_the_limit():
    out, into = os.pipe()
    os.write(into, b"x" * 100)
    with pytest.raises(DocumentError, match=r"larger than 10 bytes \(got 11 bytes\)"):
        file_content(Path(f"/dev/fd/{out}"), bytes_limit=10)
    os.close(out)
    os.close(into)


def test_a_file_of_just_the_limit_is_read(tmp_path):
    (tmp_path / "file").write_bytes(b"x" * 10)
    assert file_content(tmp_path / "file", bytes_limit=10) == b"x" * 10


def test_a_file_over_the_limit_says_its_whole_size(tmp_path):
    (tmp_path / "file").write_bytes(b"x" * 12)
    with pytest.raises(DocumentError, match="got 12 bytes"):
        file_content(tmp_path / "file", bytes_limit=10)


def test_runs_are_read_more_than_once_and_not_from_a_pipe(pipe):
    with pytest.raises(DocumentError, match=r"is not a file \(got a pipe\)"):
        run_count(pipe)


def test_an_archive_is_not_read_from_a_pipe(pipe):
    with pytest.raises(DocumentError, match=r"is not a file \(got a pipe\)"):
        graph_from_archive(pipe, name="it")
