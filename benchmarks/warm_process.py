"""A warm worker process with a hard time limit, so that one bad case costs its limit alone."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from types import TracebackType
from typing import Any, Self

START_SECONDS_LIMIT = 120.0


class WarmProcess:
    """Another process that answers one line of JSON with one line of JSON.

    A process that takes too long or dies is replaced before the next question.
    """

    def __init__(self, module: str, *, seconds_limit: float) -> None:
        self._module = module
        self._seconds_limit = seconds_limit
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Return the process; it starts with the first question."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the process."""
        self._end()

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """Return the answer, or `{"status": "hung"}` or `{"status": "died"}` without one."""
        start = time.perf_counter()
        process = self._process or self._start()
        if process is None:
            message = f"{self._module} does not start"
            return {"status": "died", "seconds": time.perf_counter() - start, "message": message}
        assert process.stdin is not None
        start = time.perf_counter()
        process.stdin.write(json.dumps(question).encode() + b"\n")
        process.stdin.flush()
        line = self._line(process, self._seconds_limit)
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        self._end()
        status = "hung" if line is None else "died"
        return {"status": status, "seconds": time.perf_counter() - start}

    def _start(self) -> subprocess.Popen[bytes] | None:
        """Return a process that is ready, None if it ends or takes too long before it is."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", self._module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"OPENBLAS_NUM_THREADS": "1", **os.environ},  # as solves of the service
        )
        if not self._line(self._process, START_SECONDS_LIMIT):
            self._end()
        return self._process

    def _line(self, process: subprocess.Popen[bytes], seconds: float) -> bytes | None:
        """Return the next line, empty if the process has ended, None after `seconds`.

        The process writes whole lines, each after a question, so that nothing waits behind one.
        """
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], seconds)
        return process.stdout.readline() if ready else None

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
