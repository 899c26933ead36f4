"""Ranks that are forked from a process that has imported torch.

Importing torch costs seconds, so it is done once. Ranks serve tasks until one fails. Between tasks
they are stopped, since gloo's threads keep awake.
"""

from __future__ import annotations

import gc

if __name__ == "__main__":
    gc.disable()  # while it imports: all of it is kept

import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any

from executor.rank_main import die_with_launcher
from tests.distributed.serving_rank import serve

TASK_SECONDS = 700.0
Answer = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkedRank:
    """A child process, where its tasks go and where its answers come from."""

    process_id: int
    tasks: IO[str]
    answers: IO[str]


class ForkedRanks:
    """`world_size` ranks, forked when a task needs them."""

    def __init__(self, world_size: int) -> None:
        self._world_size = world_size
        self._ranks: list[ForkedRank] = []

    def run(self, task: str) -> Answer:
        """Return rank 0's answer to the JSON line `task`, or the first rank's failure."""
        if not self._ranks:
            self._fork()
        for rank in self._ranks:
            rank.tasks.write(task)
            rank.tasks.flush()
            os.kill(rank.process_id, signal.SIGCONT)
        answers = self._collect()
        failures = [answer for answer in answers.values() if "failure" in answer]
        if failures:
            self.end()
            return {"failure": "\n".join(str(answer["failure"]) for answer in failures)}
        for rank in self._ranks:
            os.kill(rank.process_id, signal.SIGSTOP)
        return answers[0]

    def end(self) -> None:
        """Kill the ranks."""
        for rank in self._ranks:
            os.kill(rank.process_id, signal.SIGKILL)
            os.waitpid(rank.process_id, 0)
            rank.tasks.close()
            rank.answers.close()
        self._ranks = []

    def _fork(self) -> None:
        port = _free_port()
        for rank in range(self._world_size):
            self._ranks.append(self._forked_rank(rank, port))

    def _forked_rank(self, rank: int, port: int) -> ForkedRank:
        tasks_out, tasks_in = os.pipe()
        answers_out, answers_in = os.pipe()
        process_id = os.fork()
        if process_id == 0:
            for other in self._ranks:
                other.tasks.close()
                other.answers.close()
            os.close(tasks_in)
            os.close(answers_out)
            os.environ.update(_variables(rank, self._world_size, port))
            serve(os.fdopen(tasks_out), os.fdopen(answers_in, "w", buffering=1))
        os.close(tasks_out)
        os.close(answers_in)
        return ForkedRank(
            process_id=process_id,
            tasks=os.fdopen(tasks_in, "w"),
            answers=os.fdopen(answers_out),
        )

    def _collect(self) -> Mapping[int, Answer]:
        """Return each rank's answer; after a failure or when time is over, those there are."""
        deadline = time.monotonic() + TASK_SECONDS
        answers: dict[int, Answer] = {}
        while len(answers) < self._world_size:
            waiting = {rank.answers: i for i, rank in enumerate(self._ranks) if i not in answers}
            ready, _, _ = select.select(
                list(waiting), [], [], max(0.0, deadline - time.monotonic())
            )
            if not ready:
                late = sorted(waiting.values())
                return {0: {"failure": f"ranks {late} gave no answer in {TASK_SECONDS} seconds"}}
            for stream in ready:
                line = stream.readline()
                rank = waiting[stream]
                answers[rank] = json.loads(line) if line else {"failure": f"rank {rank} died"}
            if any("failure" in answer for answer in answers.values()):
                break
        return answers


def _variables(rank: int, world_size: int, port: int) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def main() -> None:
    """Answer the tasks of standard input, one JSON object a line, until it ends."""
    die_with_launcher()
    answers = os.fdopen(int(sys.argv[1]), "w", buffering=1)
    worlds: dict[int, ForkedRanks] = {}
    gc.freeze()  # modules, which no rank should look through for garbage, or copy
    gc.enable()
    answers.write(json.dumps({"ready": True}) + "\n")
    for line in sys.stdin:
        request = json.loads(line)
        world_size = request.pop("world_size")
        world = worlds.setdefault(world_size, ForkedRanks(world_size))
        answers.write(json.dumps(world.run(json.dumps(request) + "\n")) + "\n")
    for world in worlds.values():
        world.end()


if __name__ == "__main__":
    main()
