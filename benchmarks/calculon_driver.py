"""Runs Calculon's own search for a limited time, in its own interpreter, and says how fast it is.

`python calculon_driver.py MODEL.json DEVICES BATCH DATATYPE SYSTEM.json SECONDS`, with the
checkout on PYTHONPATH. Its command hands lists of executions to a pool of processes; here a pool of
one counts them all, then runs them in scattered order until the time is over. Nothing of Meshwright
is imported, and nothing of Calculon is copied.
"""

from __future__ import annotations

import json
import logging
import random
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Self

Search = Callable[..., tuple[Any, ...]]


class SamplingPool:
    """Stands in for multiprocessing's pool: runs a scattered part of what it is given."""

    seconds_limit = 30.0
    found: dict[str, float | int | None] = {}  # noqa: RUF012 - one run a process

    def __init__(self, _: int) -> None:
        """Take the number of processes, which is one whatever it says."""

    def __enter__(self) -> Self:
        """Return the pool."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close nothing."""

    def starmap(self, search: Search, parameters: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return what the searches that were run found; note counts and seconds."""
        total = sum(search(True, *rest[1:])[1] for rest in parameters)
        scattered = list(parameters)
        random.Random(0).shuffle(scattered)  # noqa: S311 - an order, no secret
        results = []
        start = time.perf_counter()
        for one in scattered:
            results.append(search(*one))
            if time.perf_counter() - start > self.seconds_limit:
                break
        seconds = time.perf_counter() - start
        timed = sum(result[1] for result in results)
        rates = [result[0][0][0] for result in results if result[0]]
        SamplingPool.found = {
            "execution_count": total,
            "timed_count": timed,
            "timed_seconds": seconds,
            "whole_seconds": seconds * total / timed,
            "best_samples_per_second": max(rates, default=None),
        }
        return results


def main() -> None:
    """Run the command `llm-optimal-execution` with the pool replaced, and print what it took."""
    model, devices, batch, datatype, system, seconds = sys.argv[1:]
    SamplingPool.seconds_limit = float(seconds)
    searcher = import_module("calculon.llm.optimal_execution")
    searcher.mp = type("Pools", (), {"Pool": SamplingPool})  # type: ignore[attr-defined]
    command = searcher.OptimalExecution
    parser = ArgumentParser()
    command.create_parser(parser.add_subparsers())
    words = [command.NAME, model, devices, batch, datatype, system, "/dev/null.json", "--noneok"]
    arguments = parser.parse_args(words)
    arguments.output = "ignored"
    try:
        command.run_command(logging.getLogger("calculon"), arguments)
    except AssertionError:
        # it refuses the name of the output file once the search is over: nothing is written
        if not SamplingPool.found:
            raise
    print(json.dumps(SamplingPool.found))


if __name__ == "__main__":
    main()
