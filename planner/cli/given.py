"""What a user runs today: a strategy in their own file, whichever format, and in their words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from planner.cli.inputs import read_job_of, read_strategy
from planner.errors import IllegalStrategyError, InputError

if TYPE_CHECKING:
    from planner.schema.check import CheckReport
    from planner.schema.plan import ResolvedCluster, ResolvedModel
    from planner.schema.strategy import Strategy

_OWN_SUFFIXES = {".json", ".yaml", ".yml"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A strategy, the job that its file says, if any, and the file's names of the fields."""

    strategy: Strategy
    job: Mapping[str, object] | None
    names: Mapping[str, str]

    @contextmanager
    def words(self) -> Iterator[None]:
        """Raise what is wrong with the strategy in the words of the file that it came from."""
        try:
            yield
        except InputError as error:
            if not self.names:
                raise
            kind = IllegalStrategyError if isinstance(error, IllegalStrategyError) else InputError
            raise kind(
                in_words(error.problem, self.names),
                field=in_words(error.field, self.names),
                value=error.value,
                remedy=in_words(error.remedy, self.names),
            ) from None

    def reported(self, report: CheckReport) -> CheckReport:
        """Return the report of a check in the words of the file."""
        if not self.names:
            return report
        results = tuple(
            one.model_copy(update={"detail": in_words(one.detail, self.names)})
            for one in report.results
        )
        rules = tuple(in_words(rule, self.names) for rule in report.rules)
        return report.model_copy(update={"results": results, "rules": rules})


def read_given(
    path: Path,
    model: ResolvedModel,
    cluster: ResolvedCluster,
    *,
    global_batch_size: int | None = None,
) -> Given:
    """Return the strategy in the file at `path`: ours, a plan's, or another framework's.

    What the file leaves open and how it was read is said on stderr.

    Raises:
        InputError: if it is in no format that is read, or a field of it is bad.
    """
    if path.suffix.lower() in _OWN_SUFFIXES and _is_own(path):
        return Given(strategy=read_strategy(path), job=read_job_of(path), names={})
    from planner.importers.training.config import Setting
    from planner.importers.training.files import strategy_from

    setting = Setting(
        graph=model.resolved,
        device_count=cluster.resolved.device_count,
        global_batch_size=global_batch_size,
    )
    found = strategy_from(path, setting)
    for assumption in found.assumptions:
        typer.echo(f"assumed: {assumption}", err=True)
    return Given(strategy=found.strategy, job=found.job, names=found.names)


def in_words(text: str, names: Mapping[str, str]) -> str:
    """Return `text` with each field of a strategy by the name that the file gives it."""
    if not names:
        return text
    pattern = r"(?<![\w.])(?:" + "|".join(sorted(names, key=len, reverse=True)) + r")(?!\w)"
    return re.sub(pattern, lambda match: names[match[0]], text)


def _is_own(path: Path) -> bool:
    """Return whether the mapping at `path` is a strategy or plan of ours, or nothing known."""
    from planner.importers.training.files import is_foreign
    from planner.schema.document import read_fields

    return not is_foreign(read_fields(path))
