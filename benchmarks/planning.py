"""`python -m benchmarks.planning`: the planner against its bars and peers, on this machine, now.

Each row runs in a process of its own under a time limit, so that one that hangs costs its limit
and no more, and the peak of its memory is its own. The exit code is 1 if a row missed its bar,
failed or ran out of time. `benchmarks.random_cases`, `benchmarks.growth`, `benchmarks.adversary`
and `benchmarks.fuzz` ask further questions.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.machine import machine, machine_line
from benchmarks.measurement import PEAK_BYTES_BAR, Measurement
from benchmarks.page import PAGE, put
from benchmarks.peers import (
    beside_autoparallel,
    beside_calculon,
    beside_galvatron,
    beside_sailor,
)
from benchmarks.rows import ROWS
from planner.units import format_seconds

ROW_SECONDS_LIMIT = 400.0
PEER_ROWS = {
    "calculon": "Llama-2-7B on 8 A100, beside Calculon",
    "calculon-offload": "the same, with offload",
    "sailor": "OPT-350M on 128 A100 40 GB, beside Sailor",
    "galvatron": "Llama-2-7B on 8 A800 of 24 GiB, beside Galvatron",
    "autoparallel": "Llama-3-8B on 8 H100, beside AutoParallel",
}
TITLES = {name: row[0] for name, row in ROWS.items()} | PEER_ROWS
PEER_OPTIONS = (
    "calculon",
    "calculon_python",
    "sailor",
    "sailor_python",
    "galvatron",
    "galvatron_python",
    "autoparallel",
    "autoparallel_python",
)


def main() -> int:
    """Run the rows that were asked for, print them, and return the exit code."""
    options = _options()
    if options.measure:
        print(json.dumps(_work(options.measure, options)().fields()))
        return 0
    facts = machine()
    if not options.json:
        print(machine_line(facts), flush=True)
    results = []
    for name in options.rows or list(TITLES):
        result = _measured(name, options)
        results.append(result)
        if not options.json:
            print(_line(result), flush=True)
    if options.json:
        print(json.dumps({"machine": facts, "rows": results}, indent=2))
    if options.write:
        put("rows", _table(results, facts))
    return 0 if all(result["passed"] for result in results) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planning", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of: {', '.join(TITLES)}")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--write", action="store_true", help=f"into docs/{PAGE.name}")
    parser.add_argument("--calculon", metavar="PATH", help="a checkout of Calculon to run beside")
    parser.add_argument(
        "--calculon-python",
        metavar="PYTHON",
        help="an interpreter that has what Calculon imports: pandas, psutil (default: this one)",
    )
    parser.add_argument("--sailor", metavar="PATH", help="a checkout of Sailor, its planner built")
    parser.add_argument(
        "--sailor-python", metavar="PYTHON", help="the interpreter that it was built for"
    )
    parser.add_argument(
        "--galvatron", metavar="PATH", help="a checkout of Galvatron, its dynamic programming built"
    )
    parser.add_argument(
        "--galvatron-python",
        metavar="PYTHON",
        help="the interpreter that it was built for, with what its search imports",
    )
    parser.add_argument(
        "--autoparallel", metavar="PATH", help="a checkout of AutoParallel to run beside"
    )
    parser.add_argument(
        "--autoparallel-python",
        metavar="PYTHON",
        help="an interpreter that has what it imports: torch, numpy, pulp (default: this one)",
    )
    parser.add_argument(
        "--seconds-limit",
        type=float,
        default=ROW_SECONDS_LIMIT,
        help="per row (default %(default)s)",
    )
    parser.add_argument("--measure", choices=list(TITLES), help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = set(options.rows) - set(TITLES)
    if unknown:
        parser.error(f"no such row: {', '.join(sorted(unknown))}; there are {', '.join(TITLES)}")
    return options


def _work(name: str, options: argparse.Namespace) -> Callable[[], Measurement]:
    if name in ROWS:
        return ROWS[name][1]
    if name == "sailor":
        return lambda: beside_sailor(options.sailor, options.sailor_python)
    if name == "galvatron":
        return lambda: beside_galvatron(options.galvatron, options.galvatron_python)
    if name == "autoparallel":
        return lambda: beside_autoparallel(options.autoparallel, options.autoparallel_python)
    offload = name == "calculon-offload"
    return lambda: beside_calculon(options.calculon, options.calculon_python, offload=offload)


def _measured(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the row's fields, measured in a process that is ended at the limit."""
    head = {"name": name, "title": TITLES[name]}
    command = [sys.executable, "-m", "benchmarks.planning", "--measure", name]
    for option in PEER_OPTIONS:
        if getattr(options, option) is not None:
            command += [f"--{option.replace('_', '-')}", getattr(options, option)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=options.seconds_limit
        )
    except subprocess.TimeoutExpired:
        failure = f"took more than {options.seconds_limit:.0f} s"
        return {**head, "passed": False, "failure": failure}
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {**head, "passed": False, "failure": last}
    return {**head, **json.loads(done.stdout)}


def _line(result: dict[str, Any]) -> str:
    verdict = "ok  " if result["passed"] else "MISS"
    title = f"{result['title']:<44}"
    if "failure" in result:
        return f"{verdict} {title} {result['failure']}"
    if result["skipped"]:
        return f"--   {title} {result['note']}"
    bar, peak, baseline = (
        result[name] for name in ("bar_seconds", "peak_resident_bytes", "baseline_seconds")
    )
    limit = "no bar" if bar is None else f"< {format_seconds(bar)}"
    memory = "" if peak is None else f"{peak / 1e6:.0f} MB (< {PEAK_BYTES_BAR / 1e6:.0f})"
    ratio = "" if baseline is None else f"; it takes {_times(baseline, result)} as long"
    return (
        f"{verdict} {title} {format_seconds(result['seconds']):>9}  {limit:<9} {memory:<15} "
        f"{result['note']}{ratio}"
    )


def _times(baseline: float, result: dict[str, Any]) -> str:
    ratio = baseline / result["seconds"]
    return f"{ratio:,.0f} x" if ratio >= 10.0 else f"{ratio:.1f} x"


def _table(results: list[dict[str, Any]], facts: dict[str, Any]) -> Iterator[str]:
    yield f"`python -m benchmarks.planning`, {machine_line(facts)}."
    yield ""
    yield "| what | seconds | bar | peak memory | how |"
    yield "|---|---|---|---|---|"
    for result in results:
        yield f"| {' | '.join(_cells(result))} |"


def _cells(result: dict[str, Any]) -> Iterator[str]:
    yield result["title"]
    if "failure" in result or result["skipped"]:
        yield from ("", "", "", result.get("failure") or result["note"])
        return
    missed = "" if result["passed"] else ", missed"
    bar, peak, baseline = (
        result[name] for name in ("bar_seconds", "peak_resident_bytes", "baseline_seconds")
    )
    yield format_seconds(result["seconds"])
    yield missed.removeprefix(", ") if bar is None else format_seconds(bar) + missed
    yield "" if peak is None else f"{peak / 1e6:.0f} MB"
    ratio = "" if baseline is None else f": {_times(baseline, result)} as long"
    yield result["note"] + ratio


if __name__ == "__main__":
    sys.exit(main())
