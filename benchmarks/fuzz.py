"""`python -m benchmarks.fuzz`: broken documents through the public entry points.

Each gives a plan, an infeasible answer, a price or one error that names field, value and remedy.
Anything else, or an answer that takes too long, is a defect, and is printed with the documents that
show it. The exit code is 1 if there is one.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from types import FrameType
from typing import Any

from benchmarks.fuzz_corpus import fuzzed_request
from benchmarks.mutations import mutated_text
from planner import planning
from planner.errors import InputError
from planner.planning import resolved_cluster, resolved_model
from planner.schema.document import parse_fields
from planner.schema.job import Job
from planner.schema.strategy import Strategy

SECONDS_LIMIT = 10.0
SOLVER_SECONDS = 0.25
TEXT_SHARE = 0.15
UNREAD_SHARE = 0.2
MESSAGE_LENGTH_LIMIT = 2000
DOCUMENTS_SHOWN = 1200


class TooSlowError(BaseException):
    """An answer took longer than its limit; no `except Exception` hides it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one request; `defect` says what is wrong with it, empty if nothing is."""

    index: int
    kind: str
    seconds: float
    defect: str
    documents: dict[str, Any]


def outcomes(*, count: int, seed: int, seconds_limit: float = SECONDS_LIMIT) -> Iterator[Outcome]:
    """Yield what comes of `count` requests; each depends on the seed and its own index alone."""
    for index in range(count):
        yield outcome(index, seed=seed, seconds_limit=seconds_limit)


def outcome(index: int, *, seed: int, seconds_limit: float = SECONDS_LIMIT) -> Outcome:
    """Return what comes of one request."""
    random = Random(f"{seed}/{index}")  # noqa: S311 - a draw of documents, no secret
    documents = fuzzed_request(random, solver_seconds=SOLVER_SECONDS)
    start = time.perf_counter()
    kind, defect = "defect", ""
    try:
        with _limit(seconds_limit):
            kind = _answered(_given(documents, random))
    except InputError as error:
        kind, defect = "refused", _unclear(error)
    except TooSlowError:
        defect = f"more than {seconds_limit:.0f} s"
    except Exception as error:  # noqa: BLE001 - whatever else is raised is what is looked for
        place = traceback.extract_tb(error.__traceback__)[-1]
        defect = f"{type(error).__name__} at {place.filename}:{place.lineno}: {error}"[:500]
    return Outcome(
        index=index,
        kind=kind,
        seconds=time.perf_counter() - start,
        defect=defect,
        documents=documents,
    )


def _given(documents: dict[str, Any], random: Random) -> dict[str, Any]:
    """Return the documents as they reach the planner: from text, damaged text, or as they are."""
    share = random.random()
    if share < UNREAD_SHARE and all(isinstance(one, str | dict) for one in documents.values()):
        return documents
    damaged = share > 1.0 - TEXT_SHARE
    return {
        name: document
        if isinstance(document, str)
        else parse_fields(_text(document, random, damaged=damaged), source=name)
        for name, document in documents.items()
    }


def _text(document: Any, random: Random, *, damaged: bool) -> bytes:
    text = json.dumps(document)
    return mutated_text(text, random) if damaged and random.random() < 0.5 else text.encode()


def _answered(given: dict[str, Any]) -> str:
    """Return the kind of answer to the documents."""
    model, cluster = resolved_model(given["model"]), resolved_cluster(given["cluster"])
    job = Job.from_fields(given["job"], source="job")
    if "strategy" in given:
        strategy = Strategy.from_fields(given["strategy"], source="strategy")
        planning.estimate(model, cluster, job, strategy).to_json()
        return "priced"
    found = planning.plan(model, cluster, job)
    found.to_json()
    return found.status


def _unclear(error: InputError) -> str:
    """Return what an error message lacks, empty if it is clear."""
    text = str(error)
    if not error.field or not error.remedy or not error.problem:
        return f"an error without field, problem or remedy: {text[:300]}"
    if len(text) > MESSAGE_LENGTH_LIMIT:
        return f"an error of {len(text)} characters"
    return "" if text.isprintable() else f"an error that cannot be printed: {text[:300]!r}"


@contextmanager
def _limit(seconds: float) -> Iterator[None]:
    """Raise `TooSlowError` in the block after `seconds` of this process, whatever others do."""

    def ring(_: int, frame: FrameType | None) -> None:  # noqa: ARG001
        raise TooSlowError

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def main() -> int:
    """Run the requests, print what came of them, and return the exit code."""
    options = _options()
    start = time.perf_counter()
    wanted = options.only or range(options.count)
    found = [outcome(i, seed=options.seed, seconds_limit=options.seconds_limit) for i in wanted]
    defects = [one for one in found if one.defect]
    kinds = Counter(one.kind for one in found)
    slowest = max(found, key=lambda one: one.seconds)
    alike: dict[str, list[Outcome]] = {}
    for one in defects:
        alike.setdefault(_signature(one.defect), []).append(one)
    for group in alike.values():
        first = group[0]
        print(f"{len(group)} x, first #{first.index}: {first.defect}")
        print(f"    {json.dumps(first.documents)[:DOCUMENTS_SHOWN]}")
    counts = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common())
    print(
        f"{len(found)} requests in {time.perf_counter() - start:.0f} s: {counts}; "
        f"{len(defects)} defects; slowest #{slowest.index} {slowest.seconds:.2f} s"
    )
    return 1 if defects else 0


def _signature(defect: str) -> str:
    """Return what defects of one cause have in common: the place of an exception, or its kind."""
    place = re.match(r"\w+ at .*?:\d+", defect)
    return place.group() if place else re.sub(r"\d+", "N", defect.partition(": ")[0])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, nargs="+", metavar="INDEX", help="only these")
    parser.add_argument(
        "--seconds-limit", type=float, default=SECONDS_LIMIT, help="for each (default %(default)s)"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
