"""`python -m benchmarks.planning`: the planner against its bars, on this machine, now.

Each row runs in a process of its own under a time limit, so that one that hangs costs its limit
and no more. The exit code is 1 if a row missed its bar, failed or ran out of time.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from typing import Any

from benchmarks.rows import ROWS
from planner.units import format_seconds

ROW_SECONDS_LIMIT = 120.0


def main() -> int:
    """Run the rows that were asked for, print them, and return the exit code."""
    options = _options()
    if options.measure:
        print(json.dumps(ROWS[options.measure][1]().fields()))
        return 0
    results = []
    for name in options.rows or list(ROWS):
        result = _measured(name, seconds_limit=options.seconds_limit)
        results.append(result)
        if not options.json:
            print(_line(result), flush=True)
    if options.json:
        print(json.dumps({"machine": _machine(), "rows": results}, indent=2))
    return 0 if all(result["passed"] for result in results) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planning", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of: {', '.join(ROWS)}")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--seconds-limit",
        type=float,
        default=ROW_SECONDS_LIMIT,
        help="per row (default %(default)s)",
    )
    parser.add_argument("--measure", choices=list(ROWS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = set(options.rows) - set(ROWS)
    if unknown:
        parser.error(f"no such row: {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    return options


def _measured(name: str, *, seconds_limit: float) -> dict[str, Any]:
    """Return the row's fields, measured in a process that is ended at the limit."""
    head = {"name": name, "title": ROWS[name][0]}
    command = [sys.executable, "-m", "benchmarks.planning", "--measure", name]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=seconds_limit
        )
    except subprocess.TimeoutExpired:
        return {**head, "passed": False, "failure": f"took more than {seconds_limit:.0f} s"}
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {**head, "passed": False, "failure": last}
    return {**head, **json.loads(done.stdout)}


def _line(result: dict[str, Any]) -> str:
    verdict = "ok  " if result["passed"] else "MISS"
    if "failure" in result:
        return f"{verdict} {result['title']:<34} {result['failure']}"
    bar = result["bar_seconds"]
    limit = "no bar" if bar is None else f"< {format_seconds(bar)}"
    baseline = result["baseline_seconds"]
    ratio = "" if baseline is None else f"; baseline takes {baseline / result['seconds']:.1f} x"
    return (
        f"{verdict} {result['title']:<34} {format_seconds(result['seconds']):>9}  {limit:<9} "
        f"{result['note']}{ratio}"
    )


def _machine() -> dict[str, str]:
    return {"python": platform.python_version(), "machine": platform.machine()}


if __name__ == "__main__":
    sys.exit(main())
