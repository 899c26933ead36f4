"""`python -m benchmarks.smaller_devices FILE`: whether runs that run out of memory are known to.

Hardly anyone publishes that a run ran out of memory. A run whose peak was measured would run out on
each device with less than that, and fit on each with more; so every measured peak is asked of every
size of memory that a shipped device has, and what is predicted of the run in the same terms (live
tensors, the allocator's reserve, or the device's use) is asked likewise. Runs of test suites, whose
peaks are smaller than any device, are left out.

An allocator that runs short gives back what it reserves and nobody uses: a run that needs only
little more than a device has may yet fit there, and counts here as one that does not.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from benchmarks.page import DOCS, put
from planner.hardware import device_names, device_profile
from planner.importers.measured_runs import read_measured_runs
from planner.units import GIB
from planner.validation.comparison import Comparison, Pair
from planner.validation.measurement import TINY_TIER
from planner.validation.report import compared

PAGE = DOCS / "accuracy.md"
_EDGES = (0.0, 0.05, 0.1, 0.25, 0.5, 1.0, float("inf"))  # need over memory, less 1
_NEAR = 2.0  # beyond, nothing is ever wrong


def memory_sizes() -> tuple[float, ...]:
    """Return the bytes of memory that shipped devices have, smallest first."""
    profiles = [device_profile(name) for name in device_names()]
    return tuple(sorted({p.memory_gib * GIB for p in profiles if p.kind == "cuda"}))


def distances(pairs: Sequence[Pair], sizes: Sequence[float]) -> Iterator[tuple[float, float]]:
    """Yield predicted and measured peak over a device's memory, of every peak and size."""
    for pair in pairs:
        for size in sizes:
            yield pair.predicted / size, pair.measured / size


def table(pairs: Sequence[Pair], sizes: Sequence[float]) -> Iterator[str]:
    """Yield the lines of a table by how far a need and a memory are apart."""
    found = list(distances(pairs, sizes))
    yield f"{len(pairs)} measured peaks on {len(sizes)} sizes of memory."
    yield ""
    yield "| need and memory differ by | ran out | missed | had room | refused |"
    yield "|---|---|---|---|---|"
    for low, high in pairwise(_EDGES):
        name = f"{low:.0%} to {high:.0%}" if high < float("inf") else f"{low:.0%} and more"
        yield _line(name, [(p, m) for p, m in found if low <= max(m, 1.0 / m) - 1.0 < high])
    near = [(p, m) for p, m in found if max(m, 1.0 / m) < _NEAR]
    yield _line("less than 100%", near)
    yield _line("all", found)


def _line(name: str, found: Sequence[tuple[float, float]]) -> str:
    over = [predicted for predicted, measured in found if measured > 1.0]
    under = [predicted for predicted, measured in found if measured <= 1.0]
    missed = sum(predicted <= 1.0 for predicted in over)
    refused = sum(predicted > 1.0 for predicted in under)
    return f"| {name} | {_share(missed, over)} | {_share(refused, under)} |"


def _share(wrong: int, of: Sequence[float]) -> str:
    return f"{len(of)} | {wrong / len(of):.1%}" if of else "0 | "


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, and write it into docs/accuracy.md where that is asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.smaller_devices", description=__doc__
    )
    parser.add_argument("file", type=Path, help="measured runs, one JSON object a line")
    parser.add_argument("--write", action="store_true", help="into docs/accuracy.md")
    options = parser.parse_args(arguments)
    answers = compared(read_measured_runs(options.file))
    pairs = [
        answer.memory
        for answer in answers
        if isinstance(answer, Comparison)
        and isinstance(answer.memory, Pair)
        and answer.case.run.tier != TINY_TIER
    ]
    lines = list(table(pairs, memory_sizes()))
    print("\n".join(lines))
    if options.write:
        put("smaller devices", lines, page=PAGE)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
