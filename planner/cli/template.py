"""Template: a trial as a framework's own job, which reads the files that its plan is exported to.

Every line that the job prints is held against a pattern, whose one named group is what a step took
(`seconds`, `milliseconds`), or the rate that it ran at (`tokens_per_second`, the same of a device,
`samples_per_second`). The job is ended once enough steps were printed.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from planner.errors import InputError
from planner.exporters import registry
from planner.schema.job import Framework
from planner.schema.plan import Plan
from planner.tuning.outcome import WARM_UP_STEPS, failure_of

STEP_PATTERNS: Mapping[Framework, str] = MappingProxyType(
    {
        Framework.MEGATRON_LM: r"elapsed time per iteration \(ms\): (?P<milliseconds>[\d.]+)",
        Framework.TORCHTITAN: r"step: .*tps: (?P<tokens_per_second_per_device>[\d,.]+)",
        Framework.DEEPSPEED: r"CurrSamplesPerSec=(?P<samples_per_second>[\d.]+)",
    }
)
"""What frameworks print of each step: Megatron-LM's training log, torchtitan's metrics, and
DeepSpeed's throughput timer (`steps_per_print` 1)."""

_PLACEHOLDERS = ("{config}", "{folder}", "{steps}")
_TAIL_LINES = 50
_PATIENCE_SECONDS = 60.0

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
class Template:
    """A command with placeholders, the target of its exports, and what a step's line looks like."""

    words: tuple[str, ...]
    target: str
    pattern: re.Pattern[str]

    @property
    def measure(self) -> str:
        """Return the name of the pattern's group."""
        return next(iter(self.pattern.groupindex))


def read_template(text: str, *, framework: Framework | None, step_pattern: str | None) -> Template:
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
    words = _read_words(text)
    return Template(
        words=words,
        target=framework.value,
        pattern=_read_pattern(step_pattern or STEP_PATTERNS.get(framework), framework),
    )


def _read_words(text: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise InputError(
            f"is no command: {error}", field="--template", value=text, remedy="close what is open"
        ) from None
    if not words or shutil.which(words[0]) is None:
        raise InputError(
            "begins with no program that is here",
            field="--template",
            value=text,
            remedy="write a command, for example: torchrun train.py --config {config}",
        )
    if not any(place in word for word in words for place in _PLACEHOLDERS[:2]):
        raise InputError(
            "takes nothing of a plan, so that all trials would be the same",
            field="--template",
            value=text,
            remedy="write {config} for the exported file, or {folder} for where it is",
        )
    return words


def _read_pattern(text: str | None, framework: Framework) -> re.Pattern[str]:
    known = ", ".join(_MEASURES)
    if text is None:
        raise InputError(
            f"is needed: what {framework.value} prints of a step differs from job to job",
            field="--step-pattern",
            remedy=f"write a regular expression with one named group of {known}",
        )
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise InputError(
            f"is no regular expression: {error}",
            field="--step-pattern",
            value=text,
            remedy="correct it as Python's re has them",
        ) from None
    if len(pattern.groupindex) != 1 or not set(pattern.groupindex) <= set(_MEASURES):
        raise InputError(
            "has to have one named group that says what it reads",
            field="--step-pattern",
            value=text,
            remedy=f"name it one of {known}: 'step took (?P<seconds>[0-9.]+) s'",
        )
    return pattern


def outcome_of(
    plan: Plan, template: Template, *, folder: Path, log: Path, step_count: int
) -> Mapping[str, Any]:
    """Return what came of the job of a plan, as fields of a trial."""
    made = registry.export(plan, template.target)
    folder.mkdir(exist_ok=True)
    for file in made.files:
        (folder / file.name).write_text(file.text, encoding="utf-8")
    enough = step_count + WARM_UP_STEPS
    values = (str(folder / made.files[0].name), str(folder), str(enough))
    job = _Job(plan=plan, template=template, enough=enough)
    code = job.run([_filled(word, values) for word in template.words], log=log)
    timed = tuple(job.steps[WARM_UP_STEPS:])
    if timed and code in (0, None):
        return {"outcome": "measured", "step_seconds": timed}
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
    """A job as it goes on: the steps that it printed, and its last lines."""

    def __init__(self, *, plan: Plan, template: Template, enough: int) -> None:
        self._plan = plan
        self._template = template
        self._enough = enough
        self.steps: list[float] = []
        self.tail: list[str] = []

    def run(self, words: Sequence[str], *, log: Path) -> int | None:
        """Return its exit code, `None` where it was ended because it had printed enough."""
        with log.open("w", encoding="utf-8") as kept, _started(words) as process:
            for line in process.stdout or ():
                kept.write(line)
                self._read(line)
                if len(self.steps) >= self._enough:
                    return None
            return process.wait()

    def _read(self, line: str) -> None:
        self.tail = [*self.tail[-_TAIL_LINES:], line]
        found = self._template.pattern.search(line)
        value = None if found is None else _positive(found[self._template.measure] or "")
        if value is not None:
            self.steps.append(_MEASURES[self._template.measure](value, self._plan))


def _positive(text: str) -> float | None:
    """Return the number that was printed, `None` where it is no time or rate of a step."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value if 0.0 < value < math.inf else None


@contextmanager
def _started(words: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
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
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                try:
                    process.communicate(timeout=_PATIENCE_SECONDS)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
