"""A task about the cores that ranks keep to."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

from torch import distributed

from executor.cores import keep_apart
from tests.distributed.state_tasks import everyone


def kept_cores(*, bound: list[list[int]]) -> dict[str, Any]:
    """Bind each rank to cores, of the host's by number, and return by number those that it keeps.

    Of each rank they are its main thread's, and those of a thread that was there before. All
    threads may use all cores in the end.
    """
    usable = sorted(os.sched_getaffinity(0))
    threads = [int(path.name) for path in Path("/proc/self/task").iterdir()]
    is_over = threading.Event()
    early = threading.Thread(target=is_over.wait)
    early.start()
    try:
        given = {usable[number] for number in bound[distributed.get_rank()]}
        os.sched_setaffinity(0, given)
        keep_apart()
        kept = [os.sched_getaffinity(thread) for thread in (0, early.native_id or 0)]
    finally:
        is_over.set()
        early.join()
        for thread in threads:
            os.sched_setaffinity(thread, usable)
    numbers = [sorted(map(usable.index, cores)) for cores in kept]
    return {"kept": everyone(numbers)}
