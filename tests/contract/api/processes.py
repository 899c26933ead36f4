"""Services in processes of their own, as an operator runs them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).parents[3]
_RUNNING = re.compile(rb"running on (http://127\.0\.0\.1:\d+)")
# Of whatever ends by itself: what takes longer on the slowest machine hangs.
PATIENCE_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A service that answers at `url`; `log` is where its stderr goes."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path

    def client(self, **headers: str) -> httpx.Client:
        """Return a client of the service."""
        return httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE_SECONDS)

    def kill(self) -> None:
        """End the process as `kill -9` does."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def planned(client: httpx.Client, request: dict[str, Any]) -> httpx.Response:
    """Ask for a plan, and again as often as the solve outlasts the wait, and return the answer."""
    while True:
        answer = client.post("/v1/plans", json=request, headers={"Prefer": "wait=30"})
        if answer.status_code != httpx.codes.ACCEPTED:
            return answer


def until(holds: Callable[[], bool]) -> None:
    """Return as soon as something holds of another process."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.05)


@contextmanager
def serving(
    directory: Path, *, database_url: str, prefix: Sequence[str] = (), **variables: str
) -> Iterator[Running]:
    """Start a service on a free port, and end it at the end."""
    directory.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "MESHWRIGHT_DATABASE_URL": database_url,
        "MESHWRIGHT_HOST": "127.0.0.1",
        "MESHWRIGHT_PORT": "0",
        "MESHWRIGHT_SOLVER_PROCESSES": "1",
        "MESHWRIGHT_FIRST_KEY": "false",
        **{f"MESHWRIGHT_{name}": value for name, value in variables.items()},
    }
    log = directory / "service.log"
    process = subprocess.Popen(
        [*prefix, sys.executable, "-m", "api"],
        cwd=directory,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        yield Running(process=process, url=_address(process, log), log=log)
    finally:
        process.terminate()
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Return where the service listens, as it says itself; go on writing down what it says."""
    found: list[str] = []
    known = threading.Event()

    def read() -> None:
        assert process.stderr is not None
        with process.stderr as lines, log.open("ab") as file:
            for line in lines:
                file.write(line)
                file.flush()
                match = _RUNNING.search(line)
                if match:
                    found.append(match[1].decode())
                    known.set()
        known.set()

    threading.Thread(target=read, daemon=True).start()
    known.wait(PATIENCE_SECONDS)
    if not found:
        raise AssertionError(f"the service did not start: {log.read_text(encoding='utf-8')}")
    return found[0]
