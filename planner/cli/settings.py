"""`--set FIELD=VALUE`: any field of a job from the command line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from planner.cli.degrees import degree_interval, is_degree_interval
from planner.errors import InputError
from planner.schema.yaml_text import from_yaml

OPTION = "--set"
_PATH = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*")
_BYTES_LIMIT = 10_000


def with_settings(fields: Mapping[str, Any], settings: Iterable[str]) -> dict[str, Any]:
    """Return `fields` with each of the `settings` in its place; of two for one place the later.

    A setting is a path of names and a value as YAML writes it (`limits.zero_stages=[0, 1]`,
    `gradient_clipping=true`), or an interval of degrees (`limits.context_parallel_degree=1..4`).
    Whether there is such a field, and what it may hold, the document says.

    Raises:
        InputError: naming the setting that is none, or that lies within a plain value.
    """
    document = dict(fields)
    for setting in settings:
        path, value = _parsed(setting)
        *outer, last = path.split(".")
        place = document
        for name in outer:
            place = _part_of(place, name, setting=setting)
        place[last] = value
    return document


def _part_of(place: dict[str, Any], name: str, *, setting: str) -> dict[str, Any]:
    """Return a copy of the part `name`, put in its place, so that nobody's own is changed."""
    part = place.get(name)
    if part is not None and not isinstance(part, Mapping):
        raise InputError(
            f"lies within {name}, which the job has as a plain value",
            field=OPTION,
            value=setting,
            remedy=f"set {name} itself, or take it out of the job",
        )
    own: dict[str, Any] = dict(part or {})
    place[name] = own
    return own


def _parsed(setting: str) -> tuple[str, object]:
    path, equals, text = setting.partition("=")
    path = path.strip()
    if not equals or len(setting) > _BYTES_LIMIT or _PATH.fullmatch(path) is None:
        raise InputError(
            "is not FIELD=VALUE",
            field=OPTION,
            value=setting[:80],
            remedy="write the field's path and its value, such as"
            " limits.context_parallel_degree=1..4 or gradient_clipping=true",
        )
    if is_degree_interval(text):
        return path, degree_interval(text, field=f"{OPTION} {path}")
    return path, _value(text, source=f"{OPTION} {path}")


def _value(text: str, *, source: str) -> object:
    try:
        return from_yaml(text, source=source)
    except (RecursionError, ValueError) as error:
        raise InputError(
            "is not a value",
            field=source,
            value=text[:80],
            remedy="write a number, a name, true, false, null or a [list]",
        ) from error
