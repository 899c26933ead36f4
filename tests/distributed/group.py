"""Groups of gloo ranks in child processes, with a time limit on every task."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

START_SECONDS = 800.0
# The forking process has a limit of its own, names the late ranks, and is heard before this ends.
ANSWER_SECONDS = 800.0
ROOT = Path(__file__).resolve().parents[2]


class RankForks:
    """A process that forks ranks, started with the first task. After its death another starts."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._answers: IO[str] | None = None

    def run(self, world_size: int, task: str, **arguments: Any) -> dict[str, Any]:
        """Return rank 0's answer once all of `world_size` ranks have one.

        Raises:
            AssertionError: with the ranks' tracebacks, or if time runs out.
        """
        process = self._process or self._start()
        assert process.stdin is not None
        request = {"world_size": world_size, "task": task, **arguments}
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        reply = self._reply(ANSWER_SECONDS)
        if "failure" in reply:
            raise AssertionError(reply["failure"])
        answer: dict[str, Any] = reply["answer"]
        return answer

    def close(self) -> None:
        """End the forking process, and with it the ranks."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdin is not None
            self._process.stdin.close()
        if self._answers is not None:
            self._answers.close()
        self._process, self._answers = None, None

    def _start(self) -> subprocess.Popen[str]:
        reading, writing = os.pipe()
        self._answers = os.fdopen(reading, encoding="utf-8")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.distributed.forking_ranks", str(writing)],
            cwd=ROOT,
            env=_variables(),
            stdin=subprocess.PIPE,
            text=True,
            pass_fds=(writing,),
        )
        os.close(writing)
        self._reply(START_SECONDS)
        return self._process

    def _reply(self, seconds: float) -> dict[str, Any]:
        assert self._answers is not None
        ready, _, _ = select.select([self._answers], [], [], seconds)
        line = self._answers.readline() if ready else ""
        if not line:
            self.close()
            raise AssertionError("the ranks died" if ready else f"no answer in {seconds} seconds")
        reply: dict[str, Any] = json.loads(line)
        return reply


@dataclass(frozen=True, slots=True)
class RankGroup:
    """`world_size` ranks that wait for tasks. After a failure the next task gets others."""

    forks: RankForks
    world_size: int

    def run(self, task: str, **arguments: Any) -> dict[str, Any]:
        """Return rank 0's answer once all ranks have one.

        Raises:
            AssertionError: with the ranks' tracebacks, or if time runs out.
        """
        return self.forks.run(self.world_size, task, **arguments)


def _variables() -> dict[str, str]:
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "HF_HUB_OFFLINE": "1",
    }
