"""Worker: a command without torch that leaves marks of when it ran, for rounds of faults.

    python worker.py launch --marks DIR --epoch E --node N --steps S --step-seconds T

It behaves as torch's launcher does: its one rank has a session of its own. The rank goes on from
the checkpoint, writes one after every five steps (on node 0), and appends the machine's time to
its marks before and after each step. It goes on beyond its last step as long as DIR.hold is there.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

CHECKPOINT_STEPS = 5


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=("launch", "rank"))
    parser.add_argument("--marks", type=Path, required=True)
    parser.add_argument("--epoch", type=int, required=True)
    parser.add_argument("--node", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--step-seconds", type=float, required=True)
    given = parser.parse_args()
    if given.role == "launch":
        argv = [sys.executable, "-S", __file__, "rank", *sys.argv[2:]]
        return subprocess.run(argv, start_new_session=True, check=False).returncode
    train(given)
    return 0


def train(given: argparse.Namespace) -> None:
    given.marks.mkdir(parents=True, exist_ok=True)
    marks = appended(given.marks / f"{given.epoch}-{given.node}.txt")
    rows = appended(Path(os.environ["MESHWRIGHT_METRICS"]))
    checkpoint = Path(os.environ["MESHWRIGHT_CHECKPOINT"]) / "checkpoint.json"
    mark(marks, "start")
    first = 0
    if os.environ["MESHWRIGHT_RESUME"] == "1" and checkpoint.exists():
        first = json.loads(checkpoint.read_text())["step"]
    step, hold = first, Path(f"{given.marks}.hold")
    while step < given.steps or hold.exists():
        step += 1
        time.sleep(given.step_seconds)
        mark(marks, f"step {step}")
        row = {
            "rank": given.node,
            "step": step,
            "step_seconds": given.step_seconds,
            "loss": 1 / step,
        }
        os.write(rows, json.dumps(row).encode() + b"\n")
        print(f"epoch {given.epoch} node {given.node} step {step} é", flush=True)  # noqa: T201
        if given.node == 0 and (step % CHECKPOINT_STEPS == 0 or step >= given.steps):
            draft = checkpoint.with_suffix(".draft")
            draft.write_text(json.dumps({"step": step}))
            os.replace(draft, checkpoint)  # noqa: PTH105
    mark(marks, "done")


def mark(handle: int, word: str) -> None:
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    os.write(handle, f"{now:.4f} {os.getpid()} {word}\n".encode())


def appended(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


if __name__ == "__main__":
    sys.exit(main())
