"""An answer about how many devices it takes, as a person reads it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.rule import Rule
from rich.table import Table

from planner.answers.simplicity_words import beside_fastest
from planner.cli.views.frontier import proof
from planner.hardware import device_profile
from planner.schema.sizing import SizedPlan, Sizing, SizingTrial, SizingWish
from planner.units import counted, format_bytes, format_count, format_seconds


def sizing_view(sizing: Sizing) -> RenderableType:
    """Return the devices and their plan, or what stands in the way, and what was tried."""
    return Group(
        Rule(f"[bold]{escape(sizing.model.resolved.name)}[/]: {_wish(sizing.wish)}", align="left"),
        _job_line(sizing),
        *(_nothing(sizing) if sizing.answer is None else _found(sizing, sizing.answer)),
        "",
        *([_trials(sizing)] if sizing.trials else []),
        *_ranges(sizing),
    )


def _job_line(sizing: Sizing) -> str:
    job = sizing.job.resolved
    return (
        f"batch {job.global_batch_size} x {job.sequence_length} tokens, {job.precision}, "
        f"{job.optimizer}, {job.stack}"
    )


def _wish(wish: SizingWish) -> str:
    money = "" if wish.budget is None else f" for at most ${wish.budget:,.0f}"
    days = "day" if wish.days == 1.0 else "days"
    return f"{format_count(wish.tokens)} tokens in {wish.days:g} {days}{money}, {wish.goal}"


def _found(sizing: Sizing, answer: SizedPlan) -> Iterator[str]:
    shape = f"{answer.node_count} x {answer.devices_per_node} {escape(answer.device)}"
    yield (
        f"[bold green]{counted(answer.device_count, 'device')}[/] ({shape}): "
        f"{answer.days:.3g} days, ${answer.cost:,.0f} in all, {answer.step_count} steps of "
        f"{format_seconds(answer.step_seconds)}, MFU {answer.model_flop_utilization:.1%}"
    )
    yield (
        f"{escape(answer.description)}, peak {format_bytes(answer.peak_memory_bytes)}, "
        f"{proof(answer.certificate)}"
    )
    said, goal = answer.certificate.simplicity, sizing.wish.goal
    if said is not None:
        yield f"of this plan: {escape(beside_fastest(said, answer.strategy, answer.step_seconds))}"
    if not sizing.proven:
        yield f"the {goal} found: not every count was solved in time"
    elif goal == "fewest":
        yield "the fewest among the counts tried: each smaller one was solved and will not do"
    else:
        yield "the cheapest among the counts tried: each other one was solved and is dearer"
    if sizing.next_smaller is not None:
        yield f"next smaller: {_outcome(sizing.next_smaller)}"


def _nothing(sizing: Sizing) -> Iterator[str]:
    binding = (sizing.binding or "time_limit").replace("_", " ")
    yield f"[bold red]no count that was tried will do[/]: the {binding} binds"
    if sizing.nearest_miss is not None:
        yield f"nearest: {_outcome(sizing.nearest_miss)}"
    if not sizing.trials:
        yield from _too_few(sizing)
    if not sizing.proven:
        yield "not every count was solved in time"


def _too_few(sizing: Sizing) -> Iterator[str]:
    """Yield what would do where even peak rates ask for more devices than may be had."""
    wish, nearest = sizing.wish, sizing.nearest_miss
    needed = [r.least_device_count for r in sizing.ranges if r.least_device_count is not None]
    if not needed:
        return
    yield (
        f"--max-devices {wish.max_devices} is too few for --days {wish.days:g}: even at peak rates "
        f"it takes {counted(min(needed), 'device')} or more"
    )
    if nearest is not None and nearest.days is not None:
        about = math.ceil(nearest.device_count * nearest.days / wish.days)
        days = math.ceil(nearest.days * 10.0) / 10.0
        yield (
            f"what would do: --days {days:g} on {nearest.device_count} {escape(nearest.device)}, "
            f"or about {about} devices at its pace (--max-devices)"
        )


def _outcome(trial: SizingTrial) -> str:
    head = f"{trial.device_count} {escape(trial.device)}"
    if trial.days is None:
        return f"{head}: {escape(trial.reason or trial.verdict.replace('_', ' '))}"
    sure = "" if trial.certificate is None else f", {proof(trial.certificate)}"
    return f"{head}: {trial.days:.4g} days, ${trial.cost or 0.0:,.0f} in all{sure}"


def _trials(sizing: Sizing) -> Table:
    """Return the counts with a plan one by one, and the others by kind and what became of them."""
    table = Table(title="Tried", title_justify="left", box=None, pad_edge=False)
    for heading in ("devices", "kind", "verdict", "step", "days", "cost"):
        table.add_column(heading, justify="left" if heading in {"kind", "verdict"} else "right")
    for trial in sizing.trials:
        if trial.step_seconds is not None:
            table.add_row(
                str(trial.device_count),
                escape(trial.device),
                _verdict(sizing, trial),
                format_seconds(trial.step_seconds),
                "" if trial.days is None else f"{trial.days:.3g}",
                "" if trial.cost is None else f"${trial.cost:,.0f}",
            )
    without: dict[tuple[str, str], list[SizingTrial]] = {}
    for trial in sizing.trials:
        if trial.step_seconds is None:
            without.setdefault((trial.device, _verdict(sizing, trial)), []).append(trial)
    for (device, verdict), trials in without.items():
        table.add_row(
            _counts(trials),
            escape(device),
            verdict,
            *(_over(sizing, trials)),
        )
    return table


def _counts(trials: list[SizingTrial]) -> str:
    counts = [trial.device_count for trial in trials]
    if len(counts) == 1:
        return str(counts[0])
    return f"{len(counts)} counts, {min(counts)} to {max(counts)}"


def _over(sizing: Sizing, trials: list[SizingTrial]) -> tuple[str, str, str]:
    """Return what step, days and cost are over at the least, where that is known."""
    job = sizing.job.resolved
    steps = math.ceil(
        sizing.wish.tokens / ((job.global_batch_size or 1) * (job.sequence_length or 1))
    )
    known = [(t.cutoff_seconds, t) for t in trials if t.cutoff_seconds is not None]
    if not known:
        return "", "", ""
    seconds = min(cutoff for cutoff, _ in known)
    cost = min(
        cutoff * steps / 3600.0 * t.device_count * device_profile(t.device).price_per_device_hour
        for cutoff, t in known
    )
    days = seconds * steps / 86400.0
    return f"> {format_seconds(seconds)}", f"> {days:.3g}", f"> ${cost:,.0f}"


def _verdict(sizing: Sizing, trial: SizingTrial) -> str:
    """Return the verdict; where the cheapest was sought, others were asked to cost less than it."""
    words = trial.verdict.replace("_", " ")
    is_dearer = trial.verdict == "misses" and trial.limited_by == "budget"
    if is_dearer and sizing.wish.goal == "cheapest" and sizing.answer is not None:
        return "dearer"
    return words if trial.limited_by is None else f"{words} ({trial.limited_by})"


def _ranges(sizing: Sizing) -> Iterator[str]:
    for kind in sizing.ranges:
        name = escape(kind.device)
        if kind.least_device_count is None:
            yield f"{name}: has no rate for {sizing.job.resolved.precision}"
            continue
        yield (
            f"{name}: at its peak rate it takes {counted(kind.least_device_count, 'device')}; "
            f"{len(kind.tried)} counts from there on were tried, {len(kind.untried)} were not"
        )
