"""A rank of a test group: reads tasks, one JSON object a line, and answers each."""

from __future__ import annotations

import json
import os
import traceback
import warnings
from datetime import timedelta
from typing import IO, Any, NoReturn

import torch
from torch import distributed

from executor.folder_lock import release_all
from executor.rank_main import die_with_launcher
from tests.distributed.reference import floats_of
from tests.distributed.tasks import IN_FP32, TASKS

COLLECTIVE_TIMEOUT = timedelta(seconds=600)


def serve(tasks: IO[str], answers: IO[str]) -> NoReturn:
    """Serve `tasks` until they end, then end the process without torch's own clean-up."""
    try:
        die_with_launcher()
        torch.set_num_threads(1)
        distributed.init_process_group("gloo", timeout=COLLECTIVE_TIMEOUT)
        for line in tasks:
            answers.write(json.dumps(_answer(json.loads(line))) + "\n")
    finally:
        os._exit(0)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    task = request.pop("task")
    bits = request.pop("bits", 32 if task in IN_FP32 else 64)
    try:
        with warnings.catch_warnings(), floats_of(bits):
            return {"answer": TASKS[task](**request)}
    except Exception:  # noqa: BLE001 - the test shows it
        return {"failure": traceback.format_exc()}
    finally:
        release_all()  # a run's process would end here
