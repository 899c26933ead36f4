"""The head of a comparison: what each plan promises, and how far that is from the baseline's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from api.dashboard import quantities
from planner.answers.comparison import Compared
from planner.schema.plan import ResolvedCluster, ResolvedModel

Verdict = Literal["better", "worse", "same"]


_NAME_LENGTH = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A plan's value, and how far it is from the baseline's, in words where that is judged."""

    text: str
    delta: str = ""
    verdict: Verdict = "same"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One number of a plan's card."""

    label: str
    cell: Cell
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    label: str
    value: Callable[[Compared], float | None]
    shown: Callable[[float | None], str]
    lower_is_better: bool
    note: Callable[[Compared], str] = lambda _: ""


def metrics(compared: Compared, baseline: Compared) -> tuple[Metric, ...]:
    """Return the numbers of the card of `compared`, with deltas unless it is the baseline."""
    return tuple(_metrics(compared, baseline))


def is_same_work(compared: Compared, baseline: Compared) -> bool:
    """Return whether a step of both trains the same model on as many tokens of the same cluster.

    Where it does not, a longer step is no worse one.
    """

    def work(each: Compared) -> tuple[object, ...]:
        job = each.job.resolved
        return each.model.digest, each.cluster.digest, job.global_batch_size, job.sequence_length

    return work(compared) == work(baseline)


def differing_names(
    label: str, documents: Sequence[ResolvedModel] | Sequence[ResolvedCluster]
) -> Iterator[str]:
    """Yield `model a → b` where the documents differ, also where their names do not say so."""
    names = dict.fromkeys(document.resolved.name for document in documents)
    if len(names) > 1:
        yield f"{label} {' → '.join(map(_middle_out, names))}"
    elif len({document.digest for document in documents}) > 1:
        yield f"{label} of the same name, {_middle_out(next(iter(names)))}, with other fields"


def _middle_out(name: str) -> str:
    """Return a name without the middle of a long one: beginnings and ends tell names apart."""
    return name if len(name) <= _NAME_LENGTH else f"{name[:28]}…{name[-19:]}"


def peak_bytes(compared: Compared) -> float:
    """Return the bytes on the fullest device."""
    return max(stage.peak_memory_bytes for stage in compared.prediction.stages)


def _metrics(compared: Compared, baseline: Compared) -> Iterator[Metric]:
    judged = is_same_work(compared, baseline)
    for kind in _KINDS:
        value, first = kind.value(compared), kind.value(baseline)
        if value is None:
            continue
        cell = Cell(text=kind.shown(value))
        if compared is not baseline and first:
            ratio = value / first - 1.0
            text = quantities.change(ratio)
            verdict: Verdict = "same"
            if judged and text != quantities.change(0.0):
                verdict = "better" if (ratio < 0) == kind.lower_is_better else "worse"
            cell = Cell(text=kind.shown(value), delta=text, verdict=verdict)
        yield Metric(label=kind.label, cell=cell, note=kind.note(compared))


def _range(compared: Compared) -> str:
    step = compared.prediction.step_seconds
    return f"{quantities.seconds(step.p10)} to {quantities.seconds(step.p90)} (p10 to p90)"


def _capacity(compared: Compared) -> str:
    fullest = max(compared.prediction.stages, key=lambda stage: stage.peak_memory_bytes)
    chance = compared.prediction.fits_probability
    return f"{chance:.0%} chance to fit into {quantities.memory(fullest.capacity_bytes)}"


_KINDS = (
    _Kind(
        label="Step",
        value=lambda compared: compared.prediction.step_seconds.p50,
        shown=quantities.seconds,
        lower_is_better=True,
        note=_range,
    ),
    _Kind(
        label="Throughput per device",
        value=lambda compared: compared.prediction.tokens_per_second_per_device,
        shown=quantities.rate,
        lower_is_better=False,
    ),
    _Kind(
        label="Peak memory",
        value=peak_bytes,
        shown=quantities.memory,
        lower_is_better=True,
        note=_capacity,
    ),
    _Kind(
        label="Cost per million tokens",
        value=lambda compared: compared.prediction.cost_per_million_tokens,
        shown=quantities.money,
        lower_is_better=True,
    ),
)
