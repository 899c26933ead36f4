"""A rank of a test group: reads tasks, one JSON object a line, and answers each."""

from __future__ import annotations

import json
import os
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import timedelta
from typing import IO, Any, NoReturn

import torch
from torch import distributed
from torch.distributed import device_mesh

from executor.folder_lock import release_all
from executor.rank_main import die_with_launcher
from tests.distributed.reference import floats_of
from tests.distributed.tasks import IN_FP32, TASKS

COLLECTIVE_TIMEOUT = timedelta(seconds=600)


class KeptGroups:
    """Process groups, made once and lent to each task that wants groups of the same ranks.

    gloo gives each group threads that wake a hundred times a second until its process ends. Two
    groups of one task are two groups, of the same ranks too.
    """

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make
        self._kept: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
        self._lent: Counter[tuple[Any, ...]] = Counter()

    def take_back(self) -> None:
        """Let the next task have all groups."""
        self._lent.clear()

    def lend(self, ranks: list[int] | None = None, **fields: Any) -> Any:
        """Return a group of `ranks` that this task does not have yet."""
        key = (None if ranks is None else tuple(ranks), fields.get("backend"))
        kept = self._kept[key]
        if self._lent[key] == len(kept):
            kept.append(self._make(ranks, **fields))
        self._lent[key] += 1
        return kept[self._lent[key] - 1]


def serve(tasks: IO[str], answers: IO[str]) -> NoReturn:
    """Serve `tasks` until they end, then end the process without torch's own clean-up."""
    try:
        die_with_launcher()
        torch.set_num_threads(1)
        distributed.init_process_group("gloo", timeout=COLLECTIVE_TIMEOUT)
        groups = KeptGroups(distributed.new_group)
        distributed.new_group = device_mesh.new_group = groups.lend  # type: ignore[assignment]
        for line in tasks:
            groups.take_back()
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
