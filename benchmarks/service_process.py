"""The service under measurement: two cores, an address of its own, a log to read afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parent.parent
START_SECONDS_LIMIT = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceProcess:
    """A service that answers at `url`."""

    process: subprocess.Popen[bytes]
    url: str

    def file_handle_count(self) -> int:
        """Return how many files, sockets and pipes the service has open."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))  # noqa: PTH208 - no entries needed

    def thread_count(self) -> int:
        """Return how many threads the service's own process has."""
        return len(os.listdir(f"/proc/{self.process.pid}/task"))  # noqa: PTH208 - as above

    def resident_bytes(self) -> int:
        """Return the memory that the service's own process has in RAM."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def kill(self) -> None:
        """End it as `kill -9` does."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@contextmanager
def running_service(
    directory: Path, *, port: int, prefix: Sequence[str] = (), **variables: str
) -> Iterator[ServiceProcess]:
    """Start a service whose files are in `directory`; end it at the end."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "MESHWRIGHT_DATABASE_URL": f"sqlite:///{directory}/meshwright.db",
        "MESHWRIGHT_PORT": str(port),
        "MESHWRIGHT_FIRST_KEY": "false",
        **variables,
    }
    with (directory / "service.log").open("ab") as log:
        process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "api"],
            cwd=directory,
            env=environment,
            stdout=log,
            stderr=log,
        )
    try:
        service = ServiceProcess(process=process, url=f"http://127.0.0.1:{port}")
        _await_ready(service)
        yield service
    finally:
        process.terminate()
        process.wait(timeout=30)


def _await_ready(service: ServiceProcess) -> None:
    deadline = time.monotonic() + START_SECONDS_LIMIT
    while True:
        if service.process.poll() is not None:
            raise RuntimeError("the service ended at its start; its log says why")
        try:
            if httpx.get(f"{service.url}/readyz").status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            pass
        if time.monotonic() > deadline:
            raise RuntimeError("the service did not get ready")
        time.sleep(0.1)
