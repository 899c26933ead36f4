"""What a comparison comes to: how much longer a step takes than the baseline's, where, and why.

Why is read from the strategies: each cause of time has settings that move it, and those that differ
are named beside it, unless they move it the other way. Plans of different work have no such
reasons: what was asked differently is said in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from api.dashboard import quantities
from api.dashboard.charts import Figure, delta_bars
from api.dashboard.comparison_cards import differing_names, is_same_work, peak_bytes
from api.dashboard.palette import MEMORY_PARTS, Part, step_seconds
from planner.answers.chance_words import fit_words
from planner.answers.comparison import Compared, Difference
from planner.schema.job import Precision
from planner.schema.strategy import ActivationCheckpointing, LayerGroup, Strategy
from planner.units import GIB

_SHOWN_CAUSES = 5
_SHOWN_MEMORY = 3
_LEAST_RATIO = 5e-4
_LEAST_BYTES = 0.05 * GIB
_WORK = ("job.global_batch_size", "job.sequence_length")
# What every cause of time follows from.
_ASKED = ("job.precision", "job.stack")
_MOVED_BY: Mapping[str, tuple[str, ...]] = {
    "compute": (
        "pipeline_parallel_degree",
        "stages.block_count",
        "micro_batch_size",
        "tensor_parallel_degree",
    ),
    "recompute": ("activation_checkpointing",),
    "tensor_parallel": ("tensor_parallel_degree", "sequence_parallel", "micro_batch_size"),
    "context_parallel": ("context_parallel_degree",),
    "expert_parallel": ("expert_parallel_degree", "micro_batch_size"),
    "pipeline_point_to_point": (
        "pipeline_parallel_degree",
        "pipeline_schedule",
        "virtual_pipeline_degree",
        "micro_batch_count",
    ),
    "bubble": (
        "pipeline_parallel_degree",
        "pipeline_schedule",
        "virtual_pipeline_degree",
        "micro_batch_count",
        "stages.block_count",
    ),
    "data_parallel_exposed": (
        "data_parallel_shard_degree",
        "data_parallel_replicate_degree",
        "zero_stage",
        "micro_batch_count",
    ),
    "offload_exposed": ("offload",),
    "optimizer": ("job.optimizer", "zero_stage", "data_parallel_shard_degree", "offload"),
    "host": ("micro_batch_count", "pipeline_parallel_degree"),
}
_BITS = {Precision.FP8: 8, Precision.BF16: 16, Precision.FP16: 16, Precision.FP32: 32}


def _recomputed_blocks(strategy: Strategy) -> int:
    return sum(
        group.block_count
        * (2 if group.activation_checkpointing is ActivationCheckpointing.FULL else 1)
        for group in _groups(strategy)
        if group.activation_checkpointing is not ActivationCheckpointing.NONE
    )


def _offloaded_blocks(strategy: Strategy) -> int:
    return sum(group.block_count * len(group.offload) for group in _groups(strategy))


def _groups(strategy: Strategy) -> Iterator[LayerGroup]:
    return (group for stage in strategy.stages or () for group in stage.layers)


# What a cause takes the longer for, the more there is of it.
_LENGTHENED_BY: Mapping[tuple[str, str], Callable[[Strategy], int]] = {
    ("recompute", "activation_checkpointing"): _recomputed_blocks,
    ("offload_exposed", "offload"): _offloaded_blocks,
    ("bubble", "micro_batch_count"): lambda strategy: -(strategy.micro_batch_count or 0),
    ("host", "micro_batch_count"): lambda strategy: strategy.micro_batch_count or 0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseChange:
    """A cause of time that is not as in the baseline, and the settings behind it."""

    part: Part
    seconds: float
    text: str
    settings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One plan against the baseline.

    `question` says what of the work was asked differently; `rest` is the change of all causes that
    are not listed, so that the list sums to the change of the step.
    """

    letter: str
    verdict: str
    headline: str
    question: tuple[str, ...]
    causes: tuple[CauseChange, ...]
    rest: str
    costs: tuple[str, ...]
    figure: Figure


def findings(
    compared: Sequence[Compared], differences: Sequence[Difference], *, letters: str
) -> tuple[Finding, ...]:
    """Return what each plan after the first comes to against it."""
    settings = {
        difference.name.removeprefix("strategy."): difference
        for difference in differences
        if difference.section in {"job", "strategy"}
    }
    baseline = compared[0]
    return tuple(
        _finding(baseline, other, index, settings=settings, letters=letters)
        for index, other in enumerate(compared[1:], start=1)
    )


def _finding(
    baseline: Compared,
    other: Compared,
    index: int,
    *,
    settings: Mapping[str, Difference],
    letters: str,
) -> Finding:
    first, step = (each.prediction.step_seconds.p50 for each in (baseline, other))
    changes = _changes(baseline, other)
    judged = is_same_work(baseline, other)
    listed = sorted(changes, key=lambda item: -abs(item[1]))[:_SHOWN_CAUSES]
    rest = step - first - sum(seconds for _, seconds in listed)
    changed = _Changed(before=baseline, after=other, index=index, settings=settings)
    return Finding(
        letter=letters[index],
        verdict=_verdict(first, step) if judged else "same",
        headline=_headline(first, step, letters[0], judged=judged),
        question=() if judged else tuple(_question(changed)),
        causes=tuple(
            CauseChange(
                part=part,
                seconds=seconds,
                text=quantities.signed_seconds(seconds),
                settings=tuple(_settings(part.name, seconds, changed)) if judged else (),
            )
            for part, seconds in listed
        ),
        rest=quantities.signed_seconds(rest) if abs(rest) > _LEAST_RATIO * first else "",
        costs=tuple(_costs(baseline, other)),
        figure=delta_bars(changes, total=step - first),
    )


def _changes(baseline: Compared, other: Compared) -> list[tuple[Part, float]]:
    """Return the causes whose time differs by something that can be seen, in the charts' order."""
    before = dict(step_seconds(baseline.prediction.breakdown_seconds))
    after = dict(step_seconds(other.prediction.breakdown_seconds))
    least = _LEAST_RATIO * baseline.prediction.step_seconds.p50
    return [
        (part, after[part] - before[part])
        for part in before
        if abs(after[part] - before[part]) > least
    ]


def _verdict(first: float, step: float) -> str:
    text = quantities.change(step / first - 1.0) if first else ""
    if not first or text == quantities.change(0.0):
        return "same"
    return "better" if step < first else "worse"


def _headline(first: float, step: float, letter: str, *, judged: bool) -> str:
    if _verdict(first, step) == "same":
        word = "as fast as" if judged else "as long as"
        return f"{word} {letter}: {quantities.seconds(step)} a step"
    words = ("faster", "slower") if judged else ("shorter", "longer")
    word = words[step > first]
    return (
        f"{quantities.seconds(abs(step - first))} a step {word} than {letter} "
        f"({quantities.change(step / first - 1.0)})"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Changed:
    """Two plans, and the settings in which some of all that are compared differ."""

    before: Compared
    after: Compared
    index: int
    settings: Mapping[str, Difference]

    def words(self, name: str) -> str | None:
        """Return `tensor parallel 2 → 4`; nothing where the two have the same."""
        difference = self.settings.get(name)
        if difference is None or difference.values[0] == difference.values[self.index]:
            return None
        before, after = (
            quantities.in_unit(difference.values[place], None) for place in (0, self.index)
        )
        return f"{difference.label} {before} → {after}"

    def lengthens(self, cause: str, name: str) -> float | None:
        """Return a number of the sign of the setting's effect on the cause, where that is known."""
        if name == "job.precision":
            return _bits(self.after) - _bits(self.before)
        amount = _LENGTHENED_BY.get((cause, name))
        return (
            None if amount is None else amount(self.after.strategy) - amount(self.before.strategy)
        )


def _bits(compared: Compared) -> int:
    return _BITS[compared.job.resolved.precision]


def _question(changed: _Changed) -> Iterator[str]:
    """Yield what of the work was asked differently: `model a → b`, `global batch size 16 → 32`."""
    before, after = changed.before, changed.after
    yield from differing_names("model", [before.model, after.model])
    yield from differing_names("cluster", [before.cluster, after.cluster])
    yield from filter(None, map(changed.words, _WORK))


def _settings(cause: str, seconds: float, changed: _Changed) -> Iterator[str]:
    """Yield the settings that may be behind a change, without those that move it the other way."""
    for name in (*_ASKED, *_MOVED_BY[cause]):
        words, lengthens = changed.words(name), changed.lengthens(cause, name)
        if words is not None and (lengthens is None or lengthens * seconds > 0):
            yield words


def _costs(baseline: Compared, other: Compared) -> list[str]:
    """Return what is paid or saved besides the step: memory, where it went, and money."""
    found = []
    more = peak_bytes(other) - peak_bytes(baseline)
    if abs(more) > _LEAST_BYTES:
        word = "more" if more > 0 else "less"
        found.append(
            f"{quantities.memory(abs(more))} {word} on the fullest device{_memory(baseline, other)}"
        )
    prices = [each.prediction.cost_per_million_tokens for each in (baseline, other)]
    if prices[0] and prices[1] and quantities.money(prices[0]) != quantities.money(prices[1]):
        found.append(
            f"{quantities.money(prices[1])} instead of {quantities.money(prices[0])} per million "
            f"tokens: {quantities.money(abs(prices[1] - prices[0]) * 1e6)} "
            f"{'more' if prices[1] > prices[0] else 'less'} for a trillion"
        )
    if not other.prediction.fits:
        found.append(
            f"it {fit_words(other.prediction)}: the predicted peak exceeds the usable capacity"
        )
    return found


def _memory(baseline: Compared, other: Compared) -> str:
    """Return which uses of memory changed most, the fullest stages of both compared."""
    before, after = (
        max(each.prediction.stages, key=lambda stage: stage.peak_memory_bytes).memory_bytes
        for each in (baseline, other)
    )
    changed = [
        (part, getattr(after, part.name) - getattr(before, part.name)) for part in MEMORY_PARTS
    ]
    seen = [item for item in changed if abs(item[1]) > _LEAST_BYTES]
    shown = sorted(seen, key=lambda item: -abs(item[1]))[:_SHOWN_MEMORY]
    words = ", ".join(
        f"{part.label.lower()} {quantities.signed_memory(value)}" for part, value in shown
    )
    return f" ({words})" if words else ""
