"""Template: a trial as a framework's own job, which reads the files that its plan is exported to.

Every line that the job prints is held against a pattern, whose one named group is what a step took
(`seconds`, `milliseconds`), or the rate that it ran at (`tokens_per_second`, the same of a device,
`samples_per_second`), and against another for the peak of memory, of live tensors (`allocated_mib`)
or of all that the allocator held (`reserved_gib`). The job is ended once enough steps were printed.
"""

from __future__ import annotations

import math
import os
import re
import selectors
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from planner.errors import InputError
from planner.exporters import registry
from planner.schema.job import Framework
from planner.schema.plan import Plan
from planner.schema.tuning import PeakKind
from planner.tuning.outcome import WARM_UP_STEPS, failure_of, took_too_long
from planner.units import GIB, MIB

STEP_PATTERNS: Mapping[Framework, str] = MappingProxyType(
    {
        Framework.MEGATRON_LM: r"elapsed time per iteration \(ms\): (?P<milliseconds>[\d.]+)",
        Framework.TORCHTITAN: r"step: .*tps: (?P<tokens_per_second_per_device>[\d,.]+)",
        Framework.DEEPSPEED: r"CurrSamplesPerSec=(?P<samples_per_second>[\d.]+)",
    }
)
"""What frameworks print of each step: Megatron-LM's training log, torchtitan's metrics, and
DeepSpeed's throughput timer (`steps_per_print` 1)."""

PEAK_PATTERNS: Mapping[Framework, str] = MappingProxyType(
    {
        Framework.MEGATRON_LM: r"memory \(MB\) .*\| max allocated: (?P<allocated_mib>[\d.]+)",
        Framework.TORCHTITAN: r"memory: *(?P<reserved_gib>[\d.]+)GiB",
        Framework.DEEPSPEED: r"MaxMemAllocated=(?P<allocated_gib>[\d.]+)GB",
    }
)
"""What they print of memory: Megatron-LM after the first steps, of one rank of each stage, in units
of 2^20 bytes; torchtitan and DeepSpeed (2^30 bytes, whatever it says) beside the rate, of the one
rank that prints."""

PRINT_ALL_STAGES = frozenset({Framework.MEGATRON_LM})

_PLACEHOLDERS = ("{config}", "{folder}", "{steps}")
_TAIL_LINES = 50
_PATIENCE_SECONDS = 60.0
_POLL_SECONDS = 1.0  # until it is looked whether a silent job has ended
_PIECE_BYTES = 65_536
_LINE_ENDS = re.compile(rb"[\r\n]+")

Measure = Callable[[float, Plan], float]


def _tokens(plan: Plan) -> float:
    job = plan.job.resolved
    return float((job.global_batch_size or 0) * (job.sequence_length or 0))


_MEASURES: Mapping[str, Measure] = MappingProxyType(
    {
        "seconds": lambda value, _: value,
        "milliseconds": lambda value, _: value / 1000.0,
        "tokens_per_second": lambda value, plan: _tokens(plan) / value,
        "tokens_per_second_per_device": lambda value, plan: (
            _tokens(plan) / (value * plan.strategy.world_size)
        ),
        "samples_per_second": lambda value, plan: (
            (plan.job.resolved.global_batch_size or 0) / value
        ),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakMeasure:
    """What a number says of memory: of which kind it is, and its unit."""

    kind: PeakKind
    unit_bytes: int


_PEAK_MEASURES: Mapping[str, PeakMeasure] = MappingProxyType(
    {
        f"{name}_{unit}": PeakMeasure(kind=kind, unit_bytes=size)
        for name, kind in (("allocated", PeakKind.TENSORS), ("reserved", PeakKind.RESERVED))
        for unit, size in (("bytes", 1), ("mib", MIB), ("gib", GIB))
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A command with placeholders, the target of its exports, and what its lines look like.

    Peaks are not known without `peak_pattern`, and without `all_stages` not those of pipelines, of
    which one rank says nothing of the fullest.
    """

    words: tuple[str, ...]
    target: str
    pattern: re.Pattern[str]
    peak_pattern: re.Pattern[str] | None = None
    all_stages: bool = True

    @property
    def measure(self) -> str:
        """Return the name of the pattern's group."""
        return _group(self.pattern)

    def peak_of(self, plan: Plan) -> tuple[re.Pattern[str], PeakMeasure] | None:
        """Return how peaks of the fullest rank of a plan's job are read, `None` where they are not.

        The pattern's group says what it reads.
        """
        pattern = self.peak_pattern
        if pattern is None or (plan.strategy.pipeline_parallel_degree > 1 and not self.all_stages):
            return None
        return pattern, _PEAK_MEASURES[_group(pattern)]


def _group(pattern: re.Pattern[str]) -> str:
    return next(iter(pattern.groupindex))


def read_template(
    text: str,
    *,
    framework: Framework | None,
    step_pattern: str | None,
    peak_pattern: str | None = None,
) -> Template:
    """Return the template that options spell.

    Raises:
        InputError: if no framework is named, the command cannot be run or takes nothing of a plan,
            or the pattern is none that a step can be read by.
    """
    if framework is None:
        raise InputError(
            "needs the framework whose job it is",
            field="--framework",
            remedy=f"name one of {', '.join(Framework)}",
        )
    steps = step_pattern or STEP_PATTERNS.get(framework)
    if steps is None:
        raise InputError(
            f"is needed: what {framework.value} prints of a step differs from job to job",
            field="--step-pattern",
            remedy=f"write a regular expression with one named group of {', '.join(_MEASURES)}",
        )
    peaks = peak_pattern or PEAK_PATTERNS.get(framework)
    step_example = "step took (?P<seconds>[0-9.]+) s"
    peak_example = "peak memory (?P<allocated_gib>[0-9.]+) GiB"
    return Template(
        words=_read_words(text),
        target=framework.value,
        pattern=_read_pattern(steps, "--step-pattern", known=_MEASURES, example=step_example),
        peak_pattern=None
        if peaks is None
        else _read_pattern(peaks, "--peak-pattern", known=_PEAK_MEASURES, example=peak_example),
        all_stages=peak_pattern is not None or framework in PRINT_ALL_STAGES,
    )


def _read_words(text: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise InputError(
            f"is not a command: {error}",
            field="--template",
            value=text,
            remedy="close the quotes",
        ) from None
    if not words or shutil.which(words[0]) is None:
        raise InputError(
            "begins with a program that was not found",
            field="--template",
            value=text,
            remedy="write a command, for example: torchrun train.py --config {config}",
        )
    if not any(place in word for word in words for place in _PLACEHOLDERS[:2]):
        raise InputError(
            "uses nothing of the plan, so that all trials would be the same",
            field="--template",
            value=text,
            remedy="write {config} for the exported file, or {folder} for where it is",
        )
    return words


def _read_pattern(
    text: str, field: str, *, known: Mapping[str, object], example: str
) -> re.Pattern[str]:
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise InputError(
            f"is not a regular expression: {error}",
            field=field,
            value=text,
            remedy="write one as Python's re module takes it",
        ) from None
    if len(pattern.groupindex) != 1 or not set(pattern.groupindex) <= set(known):
        raise InputError(
            "must have one named group that says what it reads",
            field=field,
            value=text,
            remedy=f"name it one of {', '.join(known)}: '{example}'",
        )
    return pattern


def outcome_of(
    plan: Plan,
    template: Template,
    *,
    folder: Path,
    log: Path,
    step_count: int,
    seconds_most: float,
) -> Mapping[str, Any]:
    """Return what came of the job of a plan, as fields of a trial."""
    made = registry.export(plan, template.target)
    folder.mkdir(exist_ok=True)
    for file in made.files:
        (folder / file.name).write_text(file.text, encoding="utf-8")
    enough = step_count + WARM_UP_STEPS
    values = (str(folder / made.files[0].name), str(folder), str(enough))
    job = _Job(plan=plan, template=template, enough=enough)
    words = [_filled(word, values) for word in template.words]
    try:
        code = job.run(words, log=log, seconds_most=seconds_most)
    except TimeoutError:
        return took_too_long(seconds_most)
    timed = tuple(job.steps[WARM_UP_STEPS:])
    if timed and code in (0, None):
        return {"outcome": "measured", "step_seconds": timed, **job.peak_fields()}
    if code == 0:
        return failure_of(f"fewer than {WARM_UP_STEPS + 1} lines matched --step-pattern")
    said = [line for line in job.tail if line.strip()]
    reason = said[-1].strip() if said else f"ended with exit status {code} and no message"
    return failure_of(reason, printed="".join(job.tail))


def _filled(word: str, values: Sequence[str]) -> str:
    for place, value in zip(_PLACEHOLDERS, values, strict=True):
        word = word.replace(place, value)
    return word


class _Job:
    """A job as it goes on: the steps and the peak that it printed, and its last lines."""

    def __init__(self, *, plan: Plan, template: Template, enough: int) -> None:
        self._plan = plan
        self._template = template
        self._enough = enough
        self._peak = template.peak_of(plan)
        self._peak_bytes: float | None = None
        self.steps: list[float] = []
        self.tail: list[str] = []

    def run(self, words: Sequence[str], *, log: Path, seconds_most: float) -> int | None:
        """Return its exit code, `None` where it was ended because it had printed enough.

        Raises:
            TimeoutError: if it took longer than `seconds_most`, and was ended.
        """
        until = time.monotonic() + seconds_most
        with log.open("w", encoding="utf-8") as kept, _started(words) as process:
            for line in _lines(process, until=until):
                kept.write(f"{line}\n")
                self._read(line)
                if len(self.steps) >= self._enough:
                    return None
            try:
                return process.wait(max(until - time.monotonic(), 0.0))
            except subprocess.TimeoutExpired:
                raise TimeoutError from None

    def peak_fields(self) -> Mapping[str, Any]:
        """Return the highest peak that was printed, as fields of a trial."""
        if self._peak is None or self._peak_bytes is None:
            return {}
        return {"peak_memory_bytes": self._peak_bytes, "peak_memory_kind": self._peak[1].kind}

    def _read(self, line: str) -> None:
        self.tail = [*self.tail[-_TAIL_LINES:], f"{line}\n"]
        value = _number(self._template.pattern, line)
        if value is not None:
            self.steps.append(_MEASURES[self._template.measure](value, self._plan))
        if self._peak is not None:
            pattern, measure = self._peak
            peak = _number(pattern, line)
            if peak is not None:
                self._peak_bytes = max(self._peak_bytes or 0.0, peak * measure.unit_bytes)


def _lines(process: subprocess.Popen[bytes], *, until: float) -> Iterator[str]:
    """Yield lines as they come, the last one although it has no end."""
    pending = b""
    for piece in _pieces(process, until=until):
        *whole, pending = _LINE_ENDS.split(pending + piece)
        yield from (line.decode("utf-8", errors="replace") for line in whole)
    if pending:
        yield pending.decode("utf-8", errors="replace")


def _pieces(process: subprocess.Popen[bytes], *, until: float) -> Iterator[bytes]:
    """Yield what a job prints, as it comes.

    What a job that has ended left behind may hold its output open: that is not waited for.

    Raises:
        TimeoutError: if the job still goes on when the clock is at `until`.
    """
    printed = process.stdout
    if printed is None:
        return
    with selectors.DefaultSelector() as selector:
        selector.register(printed, selectors.EVENT_READ)
        while True:
            left = until - time.monotonic()
            if selector.select(min(max(left, 0.0), _POLL_SECONDS)):
                piece = os.read(printed.fileno(), _PIECE_BYTES)
                if not piece:
                    return
                yield piece
            elif process.poll() is not None:
                return
            if left <= 0.0:
                raise TimeoutError


def _number(pattern: re.Pattern[str], line: str) -> float | None:
    """Return the number that the group of `pattern` has in a line, `None` where it has none."""
    found = pattern.search(line)
    return None if found is None else _positive(found[_group(pattern)] or "")


def _positive(text: str) -> float | None:
    """Return the number that was printed, `None` where it is no time or rate of a step."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value if 0.0 < value < math.inf else None


@contextmanager
def _started(words: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command in a session of its own, and end all of it with the block.

    Launchers end their ranks, which may be in other sessions, when they are told to end. Python
    writes at once, as otherwise the steps come late, and after a message of why the job ended.
    """
    with subprocess.Popen(
        words,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):  # all of it has ended
                os.killpg(process.pid, signal.SIGTERM)
            if process.poll() is None:
                try:
                    process.communicate(timeout=_PATIENCE_SECONDS)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
