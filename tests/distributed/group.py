"""A group of gloo ranks in child processes, with a time limit on every task."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

START_SECONDS = 120.0
TASK_SECONDS = 120.0
ROOT = Path(__file__).resolve().parents[2]


class RankGroup:
    """`world_size` ranks that wait for tasks. A failed task ends the group; the next starts one."""

    def __init__(self, world_size: int) -> None:
        self._world_size = world_size
        self._processes: list[subprocess.Popen[str]] = []
        self._answers: list[IO[str]] = []

    def run(self, task: str, **arguments: Any) -> dict[str, Any]:
        """Return rank 0's answer once all ranks have one.

        Raises:
            AssertionError: with the first rank's traceback, or if time runs out.
        """
        if not self._processes:
            self._start()
        line = json.dumps({"task": task, **arguments}) + "\n"
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(line)
            process.stdin.flush()
        replies = self._collect(TASK_SECONDS)
        failures = [reply["failure"] for reply in replies if "failure" in reply]
        if failures:
            self.close()
            raise AssertionError("\n".join(failures))
        answer: dict[str, Any] = replies[0]["answer"]
        return answer

    def close(self) -> None:
        """End the ranks."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
            if process.stdin is not None:
                process.stdin.close()
        for answers in self._answers:
            answers.close()
        self._processes, self._answers = [], []

    def _start(self) -> None:
        port = _free_port()
        for rank in range(self._world_size):
            reading, writing = os.pipe()
            self._answers.append(os.fdopen(reading, encoding="utf-8"))
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.distributed.serving_rank", str(writing)],
                cwd=ROOT,
                env=self._variables(rank, port),
                stdin=subprocess.PIPE,
                text=True,
                pass_fds=(writing,),
            )
            os.close(writing)
            self._processes.append(process)
        self._collect(START_SECONDS)

    def _variables(self, rank: int, port: int) -> dict[str, str]:
        return {
            **os.environ,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(self._world_size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "OMP_NUM_THREADS": "1",
            "TORCH_CPP_LOG_LEVEL": "ERROR",
            "HF_HUB_OFFLINE": "1",
        }

    def _collect(self, seconds: float) -> list[dict[str, Any]]:
        """Return one reply of each rank, or end the group when one fails or time runs out."""
        deadline = time.monotonic() + seconds
        replies: dict[int, dict[str, Any]] = {}
        while len(replies) < self._world_size:
            waiting = [answers for rank, answers in enumerate(self._answers) if rank not in replies]
            ready, _, _ = select.select(waiting, [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                self.close()
                raise AssertionError(f"no answer within {seconds} seconds")
            for answers in ready:
                rank = self._answers.index(answers)
                line = answers.readline()
                replies[rank] = json.loads(line) if line else {"failure": f"rank {rank} died"}
            if any("failure" in reply for reply in replies.values()):
                break
        return [replies[rank] for rank in sorted(replies)]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
