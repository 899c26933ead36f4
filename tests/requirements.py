"""What tests need that a machine may lack: the reason that a skip gives, and what brings it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

# The start of each reason that a test may give for a skip, and the command or the place that helps.
REMEDIES: Mapping[str, str] = {
    "no Chromium is installed": "apt-get install chromium",
    "no PostgreSQL server is installed": "apt-get install postgresql",
    "no Redis is installed": "apt-get install redis-server",
    "no nginx is installed": "apt-get install nginx-light",
    "no curl is installed": "apt-get install curl",
    "no C compiler is installed": "apt-get install gcc",
    "needs Slurm": "apt-get install slurm-wlm, then make test-exports",
    "needs a framework": "make test-exports",
    "the published runs are not here": "put runs in the form of docs/measured-runs.md, which this "
    "repository does not hold, at ../shared/data/measured_runs.jsonl beside it",
    "MESHWRIGHT_SCREENSHOTS names no folder": "MESHWRIGHT_SCREENSHOTS=docs/screenshots make "
    "test TESTS=tests/browser/test_screenshots.py takes the pictures of docs/dashboard.md anew",
    "no network namespaces are allowed": "run as root, outside a container that forbids them",
    "torch sees no CUDA device here": "a machine with an NVIDIA GPU, and torch built for CUDA",
    "this machine has a GPU": "a machine without one",
    "this machine has a driver": "a machine without an NVIDIA driver",
    "no package ": "make test installs it",
    "tensorboard is not installed": "pip install tensorboard",
    "the executor's tests need torch": "make test installs it",
    "the extra dask is not installed": "make test installs it",
    "one core alone can be used here": "a machine with two cores",
    "a policy of Linux": "a machine that runs Linux",
}
OTHER = "see the reason"


def remedy_of(reason: str) -> str | None:
    """Return what brings what a skip with that reason lacks, None if nothing is known to."""
    return next((remedy for start, remedy in REMEDIES.items() if reason.startswith(start)), None)


def skipped_lines(reasons: Iterable[str]) -> Iterator[str]:
    """Yield a line for each thing that was lacking: how many tests, why, and what brings it."""
    counts: Counter[tuple[str, str]] = Counter()
    for reason in reasons:
        start = next((start for start in REMEDIES if reason.startswith(start)), reason)
        counts[start, remedy_of(reason) or OTHER] += 1
    for (start, remedy), count in sorted(counts.items(), key=lambda item: -item[1]):
        yield f"{count:5}  {start}: {remedy}"
