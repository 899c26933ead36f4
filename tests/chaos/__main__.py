"""`python -m tests.chaos --rounds 200 --seed 1`: rounds of random faults; prints what was lost."""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.databases import Kind
from tests.chaos.rounds import play
from tests.contract.api.postgres import server_programs


def main() -> int:
    """Play the rounds; return 1 if anything was lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=math.inf, help="no round begins later")
    parser.add_argument("--fault", action="append", help="only these; repeat")
    parser.add_argument(
        "--database", action="append", choices=("sqlite", "postgres"),
        help="a fleet on each; repeat. Without it: both, or SQLite twice without PostgreSQL",
    )  # fmt: skip
    parser.add_argument("--keep", type=Path, help="a folder for logs and the database")
    given = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="meshwright-chaos-") as temporary:
        folder = given.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        tally = play(
            folder, rounds=given.rounds, seed=given.seed, kinds=given.fault,
            seconds_limit=given.minutes * 60, databases=given.database or databases(),
            say=lambda text: print(text, flush=True),  # noqa: T201
        )  # fmt: skip
    print("\n".join(tally.lines()))  # noqa: T201
    print(f"seed {given.seed}, {time.monotonic() - began:.0f} s")  # noqa: T201
    return 1 if tally.losses else 0


def databases() -> tuple[Kind, Kind]:
    """Return what two fleets work on: rounds mostly wait, so two play at the same time."""
    return ("sqlite", "postgres") if server_programs() else ("sqlite", "sqlite")


if __name__ == "__main__":
    sys.exit(main())
