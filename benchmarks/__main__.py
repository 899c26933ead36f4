"""`python -m benchmarks`: all that is measured of the planner, one after another, in one run.

The bars and the peers, random cases, growth, and the adversary; with `--write` the first three go
into docs/planning-speed.md. It takes about half an hour on two cores.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from benchmarks.planning import PEER_OPTIONS


def main() -> int:
    """Run the benchmarks and return 1 if one of them failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--write", action="store_true", help="into docs/planning-speed.md")
    for peer in ("calculon", "sailor", "galvatron", "autoparallel"):
        parser.add_argument(f"--{peer}", metavar="PATH", help="a checkout of it to run beside")
        parser.add_argument(f"--{peer}-python", metavar="PYTHON", help="an interpreter for it")
    options = parser.parse_args()
    write = ["--write"] if options.write else []
    peers = [
        word
        for name in PEER_OPTIONS
        if getattr(options, name) is not None
        for word in (f"--{name.replace('_', '-')}", getattr(options, name))
    ]
    commands = (
        ["planning", *peers, *write],
        ["random_cases", *write],
        ["growth", *write],
        ["adversary"],
    )
    codes = []
    for module, *arguments in commands:
        print(f"--- python -m benchmarks.{' '.join([module, *arguments])}", flush=True)
        command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
        codes.append(subprocess.run(command, check=False).returncode)
    return 1 if any(codes) else 0


if __name__ == "__main__":
    sys.exit(main())
