"""Output of nccl-tests, its table or its JSON -> collectives as they were measured.

The table's columns are size, count, type, redop (older versions: nothing where there is none), root
(not in versions of before 2022), then time (us), algbw, busbw and #wrong out of place, and the same
in place. A launcher may label each line with the rank (`srun --label`, `mpirun --tag-output`). Its
head names each rank's host and product; which collective it was is on a line of its own in newer
versions, and follows from busbw over algbw in older ones, where it must be told if two are
possible. Sizes are those of the whole message. A file may hold several runs, one after the other.

Source: NVIDIA/nccl-tests, doc/PERFORMANCE.md (bus bandwidth) and src/common.cu (the table).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from planner.errors import DocumentError, InputError
from planner.schema.figures import Collective, CollectiveFigure

_ROW = re.compile(
    r"^[ \t]*([0-9]{1,15})[ \t]+([0-9]{1,15})[ \t]+([a-z]\w*)[ \t]+(?:([a-z]\w*)[ \t]+)?"
    r"([0-9-].*)$",
    re.MULTILINE,
)
_RUN = re.compile(r"^#\s*(?:Collective test starting:.*\n(?:#.*\n)*?)?#?\s*nThread\b", re.MULTILINE)
_LABEL = re.compile(r"^(?:\[[0-9,]{1,15}\](?:<stdout>)?:?|[0-9]{1,7}:)[ \t]?", re.MULTILINE)
_RANK = re.compile(
    r"^#\s+Rank\s+([0-9]{1,7})\s.*?\bon\s+(\S+)\s+device\s+[0-9]+\s+\[[^\]]*\]\s*(.*?)\s*$",
    re.MULTILINE,
)
_STARTED = re.compile(r"Collective test starting:\s*(\w+?)_perf")
_NAMES = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "all_to_all": "all_to_all",
    "sendrecv": "send_recv",
    "send_recv": "send_recv",
}
_RANK_LIMIT = 2**20
_LINE_LIMIT = 1000  # no line of a table is near
_FIGURE_LIMIT = 100_000
_RATIO_TOLERANCE = 0.02  # both rates are printed with two decimals
_LEAST_RATE = 0.5  # GB/s, from where on those decimals say enough


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveTable:
    """What one run measured, out of place: over which hosts, and on which product."""

    figures: tuple[CollectiveFigure, ...]
    rank_count: int
    host_count: int
    product: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    size: int
    reduces: bool
    of_all_in_place: bool
    microseconds: float
    algorithm_rate: float
    bus_rate: float
    is_wrong: bool = False


def collective_tables(
    text: str, *, source: str, collective: str | None = None
) -> tuple[CollectiveTable, ...]:
    """Return what a JSON file of nccl-tests or the tables in `text` hold, one for each run.

    Raises:
        InputError: if one holds no measurement, or a collective must be told and is not.
    """
    if text.lstrip().startswith("{"):
        return (collective_table(text, source=source, collective=collective),)
    text = _LABEL.sub("", text)
    starts = [match.start() for match in _RUN.finditer(text)]
    parts = [text[a:b] for a, b in zip(starts, [*starts[1:], len(text)], strict=True)] or [text]
    return tuple(collective_table(part, source=source, collective=collective) for part in parts)


def collective_table(text: str, *, source: str, collective: str | None = None) -> CollectiveTable:
    """Return what the table or the JSON file of one run holds.

    Raises:
        InputError: if it holds no measurement, or the collective must be told and is not.
    """
    if text.lstrip().startswith("{"):
        return _from_json(text, source=source, told=collective)
    text = "\n".join(line for line in text.splitlines() if len(line) <= _LINE_LIMIT)
    text = _LABEL.sub("", text)
    ranks = {int(rank): (host, product) for rank, host, product in _RANK.findall(text)}
    rows = [row for match in _ROW.finditer(text) if (row := _row(match)) is not None]
    started = _STARTED.search(text)
    told = collective or (started.group(1) if started else None)
    return _table(rows, list(ranks.values()), source=source, told=told)


def _row(match: re.Match[str]) -> _Row | None:
    """Return a row of the table, None where it is cut short or of no size."""
    words = match.group(5).split()
    root = "-1"
    if len(words) % 2:  # the root, beside as many columns in place as out of place
        root, *words = words
    try:
        microseconds, algorithm, bus = (float(word) for word in words[:3])
    except ValueError:
        return None
    if not (int(match.group(1)) and 0 < microseconds < 1e10):
        return None
    return _Row(
        size=int(match.group(1)),
        reduces=match.group(4) not in {None, "none"},
        of_all_in_place=root == "-1" and words[-1] != "N/A",
        microseconds=microseconds,
        algorithm_rate=algorithm,
        bus_rate=bus,
        # of a count: versions of before 2022 have the largest error here, 5e-07
        is_wrong=len(words) > 3 and words[3].isdigit() and int(words[3]) > 0,
    )


def _from_json(text: str, *, source: str, told: str | None) -> CollectiveTable:
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        raise DocumentError(
            "is not valid JSON", field=source, remedy="correct the syntax; is the file complete?"
        ) from None
    results = _list(fields, "results")
    devices = [d for d in _list(fields, "devices") if isinstance(d, Mapping)]
    rows = [row for result in results if (row := _json_row(result)) is not None]
    ranks = [(str(d.get("hostname", "")), _product(d)) for d in devices]
    if told is None:
        arguments = fields.get("args")
        words = " ".join(map(str, arguments)) if isinstance(arguments, list) else str(arguments)
        found = re.search(r"(\w+?)_perf", words)
        told = found.group(1) if found else None
    return _table(rows, ranks, source=source, told=told)


def _list(fields: object, name: str) -> Sequence[Any]:
    value = fields.get(name) if isinstance(fields, Mapping) else None
    return value if isinstance(value, list) else []


def _product(device: Mapping[str, Any]) -> str:
    info = device.get("device_info")
    if isinstance(info, Mapping):
        info = info.get("name", "")
    return re.sub(r"^\[[^\]]*\]\s*", "", str(info or ""))


def _json_row(result: object) -> _Row | None:
    if not isinstance(result, Mapping):
        return None
    timed = result.get("out_of_place")
    if not isinstance(timed, Mapping):
        return None
    numbers = [result.get("size"), timed.get("time"), timed.get("alg_bw"), timed.get("bus_bw")]
    if not all(isinstance(n, int | float) and not isinstance(n, bool) for n in numbers):
        return None
    size, microseconds, algorithm, bus = (float(cast("float", n)) for n in numbers)
    if not (0 < size < 1e15 and 0 < microseconds < 1e10):
        return None
    return _Row(
        size=int(size),
        reduces=result.get("redop") not in {None, "", "none"},
        of_all_in_place=result.get("root", -1) == -1,
        microseconds=microseconds,
        algorithm_rate=algorithm,
        bus_rate=bus,
        is_wrong=type(timed.get("nwrong")) is int and timed["nwrong"] > 0,
    )


def _table(
    rows: Sequence[_Row], ranks: Sequence[tuple[str, str]], *, source: str, told: str | None
) -> CollectiveTable:
    if not rows or not 2 <= len(ranks) <= _RANK_LIMIT or len(rows) > _FIGURE_LIMIT:
        raise DocumentError(
            f"holds {len(rows)} measurements over {len(ranks)} ranks; some are needed, over two "
            "ranks or more",
            field=source,
            remedy="give the whole output of nccl-tests, its list of devices too",
        )
    wrong = [row.size for row in rows if row.is_wrong]
    if wrong:
        raise DocumentError(
            f"has wrong results for {len(wrong)} sizes, the first of {wrong[0]} bytes",
            field=source,
            remedy="find the fault first: #wrong, or nwrong in JSON, has to be 0",
        )
    kind = _kind(rows, len(ranks), source=source, told=told)
    return CollectiveTable(
        figures=tuple(
            CollectiveFigure(
                kind=kind,
                rank_count=len(ranks),
                message_bytes=row.size,
                seconds=row.microseconds * 1e-6,
            )
            for row in rows
        ),
        rank_count=len(ranks),
        host_count=len({host for host, _ in ranks}),
        product=ranks[0][1],
    )


def _kind(rows: Sequence[_Row], ranks: int, *, source: str, told: str | None) -> Collective:
    """Return the collective: as it is told, else by the factor between the two bandwidths.

    2(n - 1)/n is an all_reduce, (n - 1)/n a reduce_scatter where there is an operation, and an
    all_gather or an all_to_all where there is none. Over two ranks a send and a reduce have the
    factor of an all_reduce, but the one no result in place to check, and the other a root.
    """
    if told is not None:
        if told not in _NAMES:
            raise InputError(
                "is not a collective whose time is predicted",
                field=source,
                value=told,
                remedy=f"give a table of one of {', '.join(sorted(set(_NAMES.values())))}",
            )
        return cast("Collective", _NAMES[told])
    fast = max(rows, key=lambda row: row.algorithm_rate)
    if fast.algorithm_rate >= _LEAST_RATE:
        ratio = fast.bus_rate / fast.algorithm_rate
        part = (ranks - 1) / ranks
        doubled = abs(ratio / (2 * part) - 1) < _RATIO_TOLERANCE
        if doubled and fast.reduces and fast.of_all_in_place:
            return "all_reduce"
        if abs(ratio / part - 1) < _RATIO_TOLERANCE and fast.reduces:
            return "reduce_scatter"
    raise InputError(
        "does not say which collective was measured",
        field=source,
        remedy="say which with --collective: all_reduce, all_gather, reduce_scatter, all_to_all or "
        "send_recv",
    )
