"""Launchers and their ranks, forked from a process that has imported torch.

Imports are nine tenths of what a launch of few steps takes. Forks are processes as any others: a
rank leads a session of its own, has the streams and variables that torch's agent gives it, dies
with its launcher, and its agent learns how it ended.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, NoReturn

from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler

from executor import launcher, rank_main
from tests.distributed.group import ROOT

LIMIT_SECONDS = 800
_LOOK_SECONDS = 0.01

# Python 3.12 says on stderr, which tests read, that a fork takes locks along: none is held here.
warnings.filterwarnings(
    "ignore", message=".*use of fork\\(\\) may lead", category=DeprecationWarning
)


class ForkingLaunches:
    """A process that forks launchers, started with the first of them."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def launch(self, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Return what `python -m executor.launcher` with these arguments prints, and its status."""
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        out, err = folder / "launcher.out", folder / "launcher.err"
        words = {"arguments": arguments, "out": str(out), "err": str(err)}
        process.stdin.write(json.dumps(words) + "\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], LIMIT_SECONDS)
        line = process.stdout.readline() if ready else ""
        if not line:
            self.close()
            raise AssertionError(f"no end of the launch: {err.read_text()}")
        return subprocess.CompletedProcess(
            arguments, int(line), stdout=out.read_text(), stderr=err.read_text()
        )

    def close(self) -> None:
        """End the forking process, and with it what it launched."""
        if self._process is not None:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.kill()
            self._process.wait()
            self._process.stdin.close()
            self._process.stdout.close()
        self._process = None

    def _start(self) -> subprocess.Popen[str]:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.distributed.forking_launches"],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "FATAL"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self._process


class _ForkedRank:
    """What torch's agent asks of a rank's process."""

    def __init__(self, process_id: int) -> None:
        self.pid = process_id
        self._status: int | None = None

    def poll(self) -> int | None:
        """Return its exit status, negative for a signal, `None` while it runs."""
        if self._status is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = os.waitstatus_to_exitcode(status) if ended else None
        return self._status

    def wait(self, seconds: float) -> int:
        """Return its exit status once it has ended.

        Raises:
            TimeoutExpired: if it runs for longer than `seconds`.
        """
        deadline = time.monotonic() + seconds
        while (status := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("rank", seconds)
            time.sleep(_LOOK_SECONDS)
        return status


def _forked_rank(
    _handler: SubprocessHandler, words: Sequence[str], variables: Mapping[str, str]
) -> _ForkedRank:
    """Return a rank that runs `words`: Python, -u, -m, the module, the script and its arguments."""
    assert words[1:4] == ("-u", "-m", "executor.rank_main")
    _flush()
    process_id = os.fork()
    if process_id == 0:
        os.setsid()
        for number in signal.valid_signals():
            if callable(signal.getsignal(number)):  # the agent's own
                signal.signal(number, signal.SIG_DFL)
        os.environ.clear()
        os.environ.update(variables)
        _end(rank_main.main, words[4:])
    return _ForkedRank(process_id)


def _launch(arguments: Sequence[str], out: str, err: str) -> NoReturn:
    """Be a launcher with these arguments, which prints to the files `out` and `err`."""
    rank_main.die_with_launcher()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for path, stream in ((out, 1), (err, 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    sys.stdout.reconfigure(write_through=True)  # type: ignore[union-attr]
    SubprocessHandler._popen = _forked_rank  # type: ignore[assignment]
    _end(launcher.main, arguments)


def _end(main: Callable[[Sequence[str]], int], arguments: Sequence[str]) -> NoReturn:
    """End this process with the status that `main` returns."""
    status = 1
    try:
        status = main(arguments)
        _flush()
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(status)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


def _serve(requests: IO[str], answers: IO[str]) -> None:
    """Launch what each line of `requests` asks for, and answer with its exit status."""
    for line in requests:
        process_id = os.fork()
        if process_id == 0:
            _launch(**json.loads(line))
        _, status = os.waitpid(process_id, 0)
        answers.write(f"{os.waitstatus_to_exitcode(status)}\n")
        answers.flush()


if __name__ == "__main__":
    rank_main.die_with_launcher()
    _serve(sys.stdin, sys.stdout)
