"""`python -m benchmarks.random_cases`: hundreds of random jobs, and the slowest with the reason.

Models, clusters, batches and limits are drawn with a fixed seed (`benchmarks.case`). Each case is
planned in a warm worker process that is ended when the planner's own time limit does not hold. The
exit code is 1 if the 95th percentile or the share of proven and infeasible cases misses its bar, or
a case hung, crashed or failed. With `--repeats`, all cases are planned as many times, one round
after another, but for those that take all of the planner's limit; of each the run with the median
seconds counts, or the first bad one.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from benchmarks.case import Case, random_case, random_cases
from benchmarks.machine import machine, machine_line
from benchmarks.page import PAGE, put
from benchmarks.warm_process import WarmProcess

Result = dict[str, Any]

P95_SECONDS_BAR = 8.0
ANSWERED_RATIO_BAR = 0.95
WIDE_GAP_RATIO = 0.01
HUNG_AFTER_SECONDS = 15.0
SLOWEST_SHOWN = 10
BAD = ("hung", "died", "crashed", "failed")


def main() -> int:
    """Plan the cases that were asked for, print what came of them, and return the exit code."""
    options = _options()
    if options.show is not None:
        case = random_case(options.show, seed=options.seed, seconds_limit=options.seconds_limit)
        print(json.dumps(case.fields(), indent=2))
        return 0
    drawn = random_cases(
        count=options.count,
        seed=options.seed,
        seconds_limit=options.seconds_limit,
        mixed=not options.no_mixed,
    )
    cases = [c for c in drawn if not options.cases or c.index in options.cases]
    results = list(_answered(cases, options))
    found = summary(results, seconds_limit=options.seconds_limit)
    facts = {"machine": machine(), "options": _asked(options), "summary": found}
    if options.json:
        print(json.dumps({**facts, "cases": results}, indent=2))
    else:
        print("\n".join(_report(results, facts)))
    if options.write:
        put("random cases", _table(results, facts))
    return 0 if facts["summary"]["passed"] else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.random_cases", description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--seconds-limit", type=float, default=20.0, help="the planner's own limit for each case"
    )
    parser.add_argument(
        "--workers", type=int, default=1, help="cases at a time; more share cores and take longer"
    )
    parser.add_argument("--repeats", type=int, default=1, help="rounds, of which medians count")
    parser.add_argument("--no-mixed", action="store_true", help="clusters of one kind only")
    parser.add_argument("--cases", type=int, nargs="+", metavar="INDEX", help="only these")
    parser.add_argument("--show", type=int, metavar="INDEX", help="print one case and end")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--write", action="store_true", help=f"into docs/{PAGE.name}")
    parser.add_argument("--verbose", action="store_true", help="a line for each case as it ends")
    return parser.parse_args()


def _asked(options: argparse.Namespace) -> dict[str, Any]:
    names = ("count", "seed", "seconds_limit", "workers", "repeats")
    return {name: getattr(options, name) for name in names}


def _answered(cases: Sequence[Case], options: argparse.Namespace) -> Iterator[Result]:
    """Yield the results in the order of the cases, from several warm processes."""
    runs: dict[int, list[Result]] = {case.index: [] for case in cases}
    left = list(cases)
    for _ in range(options.repeats):
        for index, result in _round(left, options).items():
            runs[index].append(result)
        left = [c for c in left if runs[c.index][-1]["seconds"] < options.seconds_limit]
    for case in cases:
        yield median_run(runs[case.index])


def _round(cases: Sequence[Case], options: argparse.Namespace) -> dict[int, Result]:
    """Return what comes of planning every case once, by index."""
    waiting: SimpleQueue[Case] = SimpleQueue()
    for case in cases:
        waiting.put(case)
    results: dict[int, Result] = {}
    threads = [
        threading.Thread(target=_work, args=(waiting, results, options))
        for _ in range(options.workers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def median_run(runs: Sequence[Result]) -> Result:
    """Return the run with the median seconds, the slower of two; the first bad one if any is."""
    bad = [run for run in runs if run["status"] in BAD]
    ordered = sorted(runs, key=lambda run: float(run["seconds"]))
    chosen = bad[0] if bad else ordered[len(ordered) // 2]
    most = max(run.get("peak_resident_bytes", 0) for run in runs)
    return {**chosen, "runs": len(runs), "peak_resident_bytes": most}


def _work(
    waiting: SimpleQueue[Case], results: dict[int, Result], options: argparse.Namespace
) -> None:
    limit = options.seconds_limit + HUNG_AFTER_SECONDS
    with WarmProcess("benchmarks.worker", seconds_limit=limit) as process:
        while True:
            try:
                case = waiting.get_nowait()
            except Empty:
                return
            result = {"index": case.index, "title": case.title(), **process.ask(case.fields())}
            results[case.index] = result
            if options.verbose:
                print(_line(result), file=sys.stderr, flush=True)


def summary(results: Sequence[Result], *, seconds_limit: float) -> dict[str, Any]:
    """Return percentiles, counts, the largest peak, and whether the bars were kept.

    Late are answers that took longer than the planner's limit.
    """
    seconds = np.array([result["seconds"] for result in results])
    statuses = Counter(result["status"] for result in results)
    p50, p95 = (float(np.percentile(seconds, q)) for q in (50, 95))
    answered = (statuses["proven"] + statuses["infeasible"]) / len(results)
    is_bad = any(statuses[status] for status in BAD)
    return {
        "case_count": len(results),
        "most_runs": max(result.get("runs", 1) for result in results),
        "p50_seconds": p50,
        "p95_seconds": p95,
        "most_seconds": float(seconds.max()),
        "late_count": int((seconds > seconds_limit).sum()),
        "statuses": dict(statuses.most_common()),
        "closed_form_proven_count": sum(r.get("closed_form_is_proven", False) for r in results),
        "answered_ratio": answered,
        "wide_gap_count": sum((r.get("gap_ratio") or 0.0) > WIDE_GAP_RATIO for r in results),
        "largest_gap_ratio": max((r.get("gap_ratio") or 0.0 for r in results), default=0.0),
        "peak_resident_bytes": max(r.get("peak_resident_bytes", 0) for r in results),
        "passed": p95 < P95_SECONDS_BAR and answered >= ANSWERED_RATIO_BAR and not is_bad,
    }


def _report(results: Sequence[Result], facts: dict[str, Any]) -> Iterator[str]:
    yield machine_line(facts["machine"])
    yield from _summary_lines(facts["summary"])
    yield f"slowest {SLOWEST_SHOWN}:"
    for result in _slowest(results):
        yield _line(result)
    for result in results:
        if result["status"] in {*BAD, "refused"}:
            yield _line(result)


def _summary_lines(found: dict[str, Any]) -> Iterator[str]:
    yield (
        f"{found['case_count']} cases{_rounds(found['most_runs'])}: "
        f"p50 {found['p50_seconds']:.2f} s, p95 {found['p95_seconds']:.2f} s "
        f"(bar {P95_SECONDS_BAR:.0f} s), most {found['most_seconds']:.2f} s; "
        f"peak resident {found['peak_resident_bytes'] / 1e6:.0f} MB"
    )
    counts = ", ".join(f"{status} {count}" for status, count in found["statuses"].items())
    counts += f", the least closed form proven in {found['closed_form_proven_count']}"
    late = f"{found['late_count']} answers beyond the limit" if found["late_count"] else "none late"
    yield (
        f"{found['answered_ratio']:.0%} proven or infeasible (bar {ANSWERED_RATIO_BAR:.0%}): "
        f"{counts}; {found['wide_gap_count']} gaps over {WIDE_GAP_RATIO:.0%}, largest "
        f"{found['largest_gap_ratio']:.2%}; {late}"
    )


def _rounds(runs: int) -> str:
    return "" if runs == 1 else f", medians of {runs} runs"


def _slowest(results: Sequence[Result]) -> list[Result]:
    return sorted(results, key=lambda result: -result["seconds"])[:SLOWEST_SHOWN]


def _table(results: Sequence[Result], facts: dict[str, Any]) -> Iterator[str]:
    """Yield the summary and the slowest cases for the page."""
    yield f"`python -m benchmarks.random_cases`, {machine_line(facts['machine'])}."
    yield ""
    yield " ".join(f"{line}." for line in _summary_lines(facts["summary"]))
    yield ""
    yield "| case | seconds | answer | why |"
    yield "|---|---|---|---|"
    for result in _slowest(results):
        gap = result.get("gap_ratio")
        answer = result["status"] + ("" if not gap else f", gap {gap:.2%}")
        yield (
            f"| {result['index']}: {result['title']} | {result['seconds']:.2f} | {answer} | "
            f"{_counts(result)}; {_phases(result)} |"
        )


def _line(result: Result) -> str:
    """Return one case with what took its time."""
    gap = result.get("gap_ratio")
    return (
        f"#{result['index']:<4} {result['seconds']:6.2f} s {result['status']:<10} "
        f"{'' if gap is None else f'gap {gap:.2%}':<10} {result['title']}: {_counts(result)}; "
        f"{_phases(result)}"
    )


def _counts(result: Result) -> str:
    total = result.get("configurations_total")
    counts = str(result.get("message", ""))[:120] if total is None else f"{total} configurations"
    if "cpu_seconds" in result:
        counts += f", {result['cpu_seconds']:.1f} s of processor"
    if "milp_count" in result:
        counts += f", {result['solved_count']} solved by {result['milp_count']} programs"
    return counts


def _phases(result: Result) -> str:
    """Return what took a tenth of the time or more."""
    return ", ".join(
        f"{name} {seconds:.1f} s"
        for name, seconds in result.get("phases", {}).items()
        if seconds > 0.1 * result["seconds"]
    )


if __name__ == "__main__":
    started = time.perf_counter()
    code = main()
    print(f"took {time.perf_counter() - started:.0f} s", file=sys.stderr)
    sys.exit(code)
