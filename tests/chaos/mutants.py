"""`python -m tests.chaos.mutants`: take each guard away and see that something notices.

A mutant is a copy of the sources in which one guard is missing. What must notice is named with it:
tests of the protocol, which take seconds, or rounds of faults on real processes. A guard that can
be taken away unnoticed has no test, and this program fails.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.guards import GUARDS, Guard
from tests.chaos.rounds import play
from tests.chaos.server import ROOT

_COPIED = ("api", "executor", "planner", "tests")
_SEEDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What noticed that a guard is missing; `noticed` is empty when nothing did."""

    guard: Guard
    noticed: str
    seconds: float

    @property
    def line(self) -> str:
        """Return a row of a table."""
        by = f"`{self.guard.test.rpartition('::')[2]}`" if self.guard.test else "rounds of faults"
        return f"| {self.guard.protects} | {by} | {self.noticed or '**nothing**'} |"


def main() -> int:
    """Judge every mutant; return 1 if one goes unnoticed."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.mutants", description=__doc__)
    parser.add_argument("--only", action="append", help="guards with this in their text; repeat")
    given = parser.parse_args()
    verdicts = []
    for guard in GUARDS:
        if not given.only or any(text in guard.protects for text in given.only):
            verdicts.append(verdict(guard))
            print(verdicts[-1].line, flush=True)  # noqa: T201
    unnoticed = sum(not found.noticed for found in verdicts)
    seconds = sum(found.seconds for found in verdicts)
    print(f"mutants {len(verdicts)}, unnoticed {unnoticed}, {seconds:.0f} s")  # noqa: T201
    return 1 if unnoticed else 0


def verdict(guard: Guard) -> Verdict:
    """Return what notices that `guard` is missing."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mw-mutant-") as temporary:
        root = mutant(guard, Path(temporary) / "sources")
        noticed = _by_test(guard, root) if guard.test else _by_rounds(guard, root)
    return Verdict(guard=guard, noticed=noticed, seconds=time.monotonic() - began)


def mutant(guard: Guard, root: Path) -> Path:
    """Return a copy of the sources without `guard`."""
    root.mkdir()
    for path in ROOT.iterdir():
        if path.name in _COPIED:
            shutil.copytree(path, root / path.name, ignore=shutil.ignore_patterns("__pycache__"))
        elif path.name == "pyproject.toml":
            shutil.copy(path, root)
        elif not path.name.startswith("."):
            (root / path.name).symlink_to(path)
    mutated = root / guard.path
    mutated.write_text(guard.removed_from(mutated.read_text()))
    return root


def _by_test(guard: Guard, root: Path) -> str:
    """Return how the test fails, nothing if it passes.

    Raises:
        RuntimeError: if it did not run at all.
    """
    command = [
        sys.executable, "-m", "pytest", guard.test, "-q", "-x", "-k", "not postgres",
        "-p", "no:cacheprovider",
    ]  # fmt: skip
    answer = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if answer.returncode not in {0, 1}:
        raise RuntimeError(f"{guard.test} did not run: {answer.stdout[-2000:]}")
    failed = [line for line in answer.stdout.splitlines() if line.startswith("E  ")]
    return f"`{failed[0][1:].strip()[:110]}`" if answer.returncode == 1 and failed else ""


def _by_rounds(guard: Guard, root: Path) -> str:
    """Return the first loss of a few rounds, nothing if there is none."""
    for seed in range(_SEEDS):
        folder = root.parent / f"fleet-{seed}"
        folder.mkdir()
        tally = play(folder, rounds=1, seed=seed, kinds=[guard.fault], root=root)
        for loss in tally.losses:
            return f"{guard.fault}: {loss.partition('): ')[2] or loss}"[:160]
    return ""


if __name__ == "__main__":
    sys.exit(main())
