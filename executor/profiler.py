"""Profiler: measures the ranks of this machine, all at once, as a training step has them.

    python -m executor.profiler --out FIGURES.json [--ranks N] [--device cpu|cuda] [--seconds S]

Matrix products by number format and inner size, attention by length and width of heads, memory,
the launch of small operators, the optimizer's update, collectives and point-to-point messages by
size. On a CPU every rank has one thread and talks over gloo; GPUs talk over NCCL. What is measured
are `planner.schema.figures`; exit status 0, 1 where something fails, 2 for usage.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from planner.extras import exit_without_extras

if __name__ == "__main__":
    exit_without_extras("executor.profiler")

import torch

from executor.errors import LaunchError
from executor.local_ranks import run_local_ranks
from executor.profiler_rank import Assignment, measure_rank
from planner.errors import MeshwrightError
from planner.schema.figures import MachineFigures

DEFAULT_RANKS = 4
DEFAULT_SECONDS = 60.0
RANKS_LIMIT = 64


def main(arguments: Sequence[str]) -> int:
    """Measure and write the figures; return the exit status."""
    parsed = _parse(arguments)
    try:
        figures = measured_figures(
            device_type=parsed.device, rank_count=parsed.ranks, seconds=parsed.seconds
        )
    except MeshwrightError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - this is a command
        return 1
    parsed.out.write_text(figures.to_json(), encoding="utf-8")
    return 0


def measured_figures(
    *, device_type: str | None, rank_count: int | None, seconds: float
) -> MachineFigures:
    """Return what is measured on `rank_count` ranks, in about `seconds`.

    Without a device the GPUs are measured if there are any, and without a count all of them, or
    four CPU ranks.

    Raises:
        LaunchError: if the machine has not the devices, or a rank fails.
    """
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    kind = device_type or ("cuda" if gpus else "cpu")
    count = rank_count or (gpus if kind == "cuda" else DEFAULT_RANKS)
    if kind == "cuda" and count > gpus:
        raise LaunchError(
            "are more ranks than this machine has GPUs",
            field="--ranks",
            value=count,
            remedy=f"measure {gpus} ranks, or CPU ranks with --device cpu"
            if gpus
            else "measure CPU ranks with --device cpu",
        )
    return _spawned(kind, count, seconds)


def _spawned(kind: str, count: int, seconds: float) -> MachineFigures:
    with tempfile.TemporaryDirectory(prefix="meshwright-profile-") as directory:
        answer = Path(directory) / "figures.json"
        assignment = Assignment(
            rank_count=count,
            kind=kind,
            seconds=seconds,
            store_path=str(Path(directory) / "store"),
            answer_path=str(answer),
        )
        run_local_ranks(measure_rank, assignment, rank_count=count, kind=kind, field="profile")
        return MachineFigures.read(answer)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m executor.profiler", description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--ranks", type=int, choices=range(1, RANKS_LIMIT + 1), metavar="N")
    parser.add_argument("--device", choices=("cpu", "cuda"))
    parser.add_argument("--seconds", type=float, default=DEFAULT_SECONDS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
