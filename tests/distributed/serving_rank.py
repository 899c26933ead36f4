"""A rank of a test group: reads tasks from standard input, one JSON object a line, answers each.

Importing torch costs seconds, so one group serves many tests.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
import warnings
from datetime import timedelta
from typing import Any

import torch
from torch import distributed

from executor.rank_main import die_with_launcher
from tests.distributed.tasks import TASKS

COLLECTIVE_TIMEOUT = timedelta(seconds=60)


def main() -> None:
    """Serve tasks until standard input ends."""
    die_with_launcher()
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", timeout=COLLECTIVE_TIMEOUT)
    answers = os.fdopen(int(sys.argv[1]), "w", buffering=1)
    answers.write(json.dumps({"ready": True}) + "\n")
    for line in sys.stdin:
        answers.write(json.dumps(_answer(json.loads(line))) + "\n")
    os._exit(0)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    task = request.pop("task")
    try:
        with warnings.catch_warnings():
            return {"answer": TASKS[task](**request)}
    except Exception:  # noqa: BLE001 - the test shows it
        return {"failure": traceback.format_exc()}


if __name__ == "__main__":
    main()
