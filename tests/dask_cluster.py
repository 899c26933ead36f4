"""A Dask cluster on loopback: a scheduler and workers in processes that tests kill."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Of whatever ends by itself: what takes longer on the slowest machine hangs.
PATIENCE_SECONDS = 600.0

needs_dask = pytest.mark.skipif(
    find_spec("distributed") is None, reason="the extra dask is not installed"
)


class DaskCluster:
    """A scheduler, and the workers that were started for it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.workers: list[subprocess.Popen[bytes]] = []
        self.start_scheduler("0")

    def start_scheduler(self, port: str) -> None:
        """Start the scheduler; with the port of one that is gone it takes its place."""
        file = self._directory / "scheduler.json"
        file.unlink(missing_ok=True)
        options = ("--host", "127.0.0.1", "--port", port, "--scheduler-file", str(file))
        self.scheduler = self._start("scheduler", *options)
        self.address: str = json.loads(_content(file, self.scheduler))["address"]

    def start_worker(self, *options: str, nanny: bool = False) -> subprocess.Popen[bytes]:
        """Start a worker that runs one task at a time."""
        own = ("--nthreads", "1", "--local-directory", str(self._directory), *options)
        kind = "--nanny" if nanny else "--no-nanny"
        worker = self._start("worker", self.address, "--host", "127.0.0.1", kind, *own)
        self.workers.append(worker)
        return worker

    def wait_for_workers(self) -> None:
        """Return once all workers that were started have joined."""
        from distributed import Client  # noqa: PLC0415 - an extra

        with Client(self.address, set_as_default=False) as client:
            client.wait_for_workers(len(self.workers), timeout=PATIENCE_SECONDS)

    def close(self) -> None:
        """End all of it."""
        for process in (*self.workers, self.scheduler):
            process.kill()
        for process in (*self.workers, self.scheduler):
            process.wait(PATIENCE_SECONDS)

    def _start(self, part: str, *options: str) -> subprocess.Popen[bytes]:
        with (self._directory / f"{part}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "dask", part, "--no-dashboard", *options],
                cwd=self._directory,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=log,
                stderr=log,
            )


@contextmanager
def dask_cluster() -> Iterator[DaskCluster]:
    """Start a scheduler, and end it and its workers at the end."""
    with tempfile.TemporaryDirectory() as directory:
        cluster = DaskCluster(Path(directory))
        try:
            yield cluster
        finally:
            cluster.close()


def _content(file: Path, process: subprocess.Popen[bytes]) -> str:
    """Return what the process writes into the file, once it is whole."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, (file.parent / "scheduler.log").read_text("utf-8")
        text = file.read_text("utf-8") if file.exists() else ""
        if text.rstrip().endswith("}"):
            return text
        time.sleep(0.05)
    raise AssertionError("the scheduler did not start")
