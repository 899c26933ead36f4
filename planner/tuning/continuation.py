"""Continuation: a kept tuning goes on only with what its trials were run with.

Its budget of runs and minutes, and how long a trial may take, may change: they say when it ends,
and no trial's steps depend on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from planner.errors import InputError, shorten
from planner.schema.tuning import Tuning

_OPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "template": "--template",
        "step_pattern": "--step-pattern",
        "peak_pattern": "--peak-pattern",
        "device": "--device",
        "steps": "--steps",
    }
)
"""What a command gives as an option of its own, by its name in `_ran_with`."""


def continued(kept: Tuning, asked: Tuning, *, path: Path) -> Tuning:
    """Return what is asked for with the trials that the file at `path` has kept of it.

    Raises:
        InputError: if those trials were run with anything else than is asked for.
    """
    differing = next(_differences("", _ran_with(kept), _ran_with(asked)), None)
    if differing is None:
        return asked.model_copy(update={"trials": kept.trials})
    field, before, now = differing
    raise InputError(
        f"differs from the tuning in {path}, which has {shorten(_shown(before))}",
        field=_OPTIONS.get(field, field),
        value=_shown(now),
        remedy="give the same to go on, or another file as --out to begin anew",
    )


def _ran_with(tuning: Tuning) -> dict[str, Any]:
    """Return all that the steps of its trials depend on."""
    documents = (
        ("model", tuning.model.resolved),
        ("cluster", tuning.cluster.resolved),
        ("job", tuning.job.resolved),
    )
    return {
        **{name: document.model_dump(mode="json") for name, document in documents},
        "script": list(tuning.script),
        "template": tuning.template,
        "step_pattern": tuning.step_pattern,
        "peak_pattern": tuning.peak_pattern,
        "device": tuning.device,
        "steps": tuning.budget.steps,
    }


def _differences(path: str, before: Any, now: Any) -> Iterator[tuple[str, object, object]]:
    """Yield the path of each value that is not alike, with both."""
    if isinstance(before, dict) and isinstance(now, dict):
        for name in before:
            yield from _differences(f"{path}.{name}" if path else name, before[name], now[name])
    elif before != now:
        yield path, before, now


def _shown(value: object) -> object:
    """Return a value as it is said, also where there is none."""
    return "none" if value is None else value
