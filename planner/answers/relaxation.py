"""Relaxation: the smallest changes to an infeasible request under which it has a plan.

Each is a change of one field (or of several that only together help), and is found by asking
whether the changed request has a plan, so none is offered that was not checked. Quantities are
searched by doubling and then halving the interval, each in steps of its own. All of it together
keeps a time limit, of which every kind of change has its share: what is not found in time is not
offered, or not as small as it could be, and that is said.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from planner.answers.chance_words import percent
from planner.answers.feasibility import Checks, Feasible, most_below
from planner.answers.growth import fewer_nodes, more_device_memory, more_host_memory, more_nodes
from planner.requests.resolution import Request
from planner.requests.variation import with_job, with_limits
from planner.schema.job import DEVICE_RETURNS_LIMIT, GLOBAL_BATCH_LIMIT, Limits, Optimizer
from planner.schema.plan import Relaxation
from planner.units import counted

_FIRST_SHARES = 3  # nodes nearly always help, and may take a third of the time
_LEAST_SEQUENCE = 128
_SEQUENCE_STEP = 256
_NEVER_LIFTED = {
    "solver_seconds",
    "accepted_gap_ratio",
    "memory_headroom_ratio",
    "fits_probability",
    "device_returns",
}
_EVEN_PERCENT = 50
_LEANER = (Optimizer.ADAM8BIT, Optimizer.MUON, Optimizer.ADAFACTOR, Optimizer.SGD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxed:
    """What would help, and whether the time was over before all of it was looked into."""

    changes: tuple[Relaxation, ...]
    is_cut: bool


def smallest_relaxations(
    request: Request, *, feasible: Feasible, seconds: float | None = None
) -> Relaxed:
    """Return changes, each as small as its own steps allow, that make `request` fit.

    Where none of them alone does, a pair may. All of it takes `seconds`, the job's own limit unless
    they are given.
    """
    limit = request.job.resolved.limits.solver_seconds if seconds is None else seconds
    end = time.perf_counter() + limit
    found: list[Relaxation] = []
    is_cut = False
    for index, family in enumerate(_FAMILIES):
        now = time.perf_counter()
        shares = len(_FAMILIES) + 1 - index if index else _FIRST_SHARES
        checks = Checks(feasible=feasible, deadline=now + max(end - now, 0.0) / shares)
        found.extend(family(request, checks))
        is_cut = is_cut or checks.is_cut
    if not found:
        checks = Checks(feasible=feasible, deadline=end)
        found.extend(islice(_pairs(request, checks), 1))
        is_cut = is_cut or checks.is_cut
    return Relaxed(changes=tuple(found), is_cut=is_cut)


def _lifted_limits(request: Request, checks: Checks) -> Iterator[Relaxation]:
    """Yield each limit that the user narrowed, lifted alone; else as few as help together."""
    limits, narrowed = request.job.resolved.limits, _narrowed(request)
    alone = [name for name in narrowed if checks.fits(_lifted(request, [name]))]
    for name in alone:
        yield _lift(limits, [name])
    if not alone and len(narrowed) > 1 and checks.fits(_lifted(request, narrowed)):
        needed = list(narrowed)
        for name in narrowed:
            fewer = [other for other in needed if other != name]
            if fewer and checks.fits(_lifted(request, fewer)):
                needed = fewer
        yield _lift(limits, needed)


def _narrowed(request: Request) -> list[str]:
    limits, default = request.job.resolved.limits, Limits()
    return [
        name
        for name in Limits.model_fields
        if name not in _NEVER_LIFTED and getattr(limits, name) != getattr(default, name)
    ]


def _lifted(request: Request, names: list[str]) -> Request:
    default = Limits()
    return with_limits(request, **{name: getattr(default, name) for name in names})


def _lift(limits: Limits, names: list[str]) -> Relaxation:
    given = limits.model_dump(mode="json")
    wanted = Limits().model_dump(mode="json")
    if len(names) == 1:
        name = names[0]
        return Relaxation(
            field=f"job.limits.{name}",
            given=given[name],
            needed=wanted[name],
            description=f"lift the limit on {name}",
        )
    return Relaxation(
        field="job.limits",
        given={name: given[name] for name in names},
        needed={name: wanted[name] for name in names},
        description=f"lift the limits on {', '.join(names)} together",
    )


def _another_return(request: Request, checks: Checks) -> Iterator[Relaxation]:
    """Yield one more return of the pipeline to a kind of device, if that is enough."""
    given = request.job.resolved.limits.device_returns
    several = len(request.hardware.kinds) > 1 and given < DEVICE_RETURNS_LIMIT
    if several and checks.fits(with_limits(request, device_returns=given + 1)):
        yield Relaxation(
            field="job.limits.device_returns",
            given=given,
            needed=given + 1,
            description="let the pipeline come back to a kind of device that it has left",
        )


def _less_room(request: Request, checks: Checks) -> Iterator[Relaxation]:
    """Yield the chance of fitting or the headroom to give up; both where neither is enough."""
    alone = [*_lower_chance(request, checks), *_less_headroom(request, checks)]
    yield from alone
    given = request.job.resolved.limits.fits_probability
    if not alone and given is not None:
        even = with_limits(request, fits_probability=_EVEN_PERCENT / 100.0)
        for other in _less_headroom(even, checks):
            yield _together(_chance(given, _EVEN_PERCENT), other)


def _lower_chance(request: Request, checks: Checks) -> Iterator[Relaxation]:
    """Yield the best chance of fitting, in whole per cent, that something has."""
    given = request.job.resolved.limits.fits_probability
    if given is None:
        return

    def fits(chance_percent: int) -> bool:
        return checks.fits(with_limits(request, fits_probability=chance_percent / 100.0))

    low, high = _EVEN_PERCENT, math.ceil(given * 100.0)
    if high > low and fits(low):
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        yield _chance(given, low)


def _chance(given: float, needed_percent: int) -> Relaxation:
    return Relaxation(
        field="job.limits.fits_probability",
        given=given,
        needed=needed_percent / 100.0,
        description=f"accept a chance of fitting of {needed_percent}% in place of {percent(given)}",
    )


def _less_headroom(request: Request, checks: Checks) -> Iterator[Relaxation]:
    """Yield the most headroom, in whole per cent, with which something fits."""
    given = request.job.resolved.limits.memory_headroom_ratio
    percent = round(given * 100.0)

    def fits(taken: int) -> bool:
        ratio = max(percent - taken, 0) / 100.0
        return checks.fits(with_limits(request, memory_headroom_ratio=ratio))

    if percent > 0 and fits(percent):
        low, high = 0, percent
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if fits(middle) else (middle, high)
        needed = (percent - high) / 100.0
        yield Relaxation(
            field="job.limits.memory_headroom_ratio",
            given=given,
            needed=needed,
            description=f"leave {needed:.0%} of device memory free in place of {given:.0%}",
        )


def _other_batches(request: Request, checks: Checks) -> Iterator[Relaxation]:
    """Yield the nearest batch that is found among multiples of the devices and smaller ones."""
    given = request.job.resolved.global_batch_size or 1
    devices_in_all = request.cluster.resolved.device_count
    above = -(-given // devices_in_all) * devices_in_all

    def fits(batch: int) -> bool:
        return checks.fits(with_job(request, global_batch_size=batch))

    more = [b for b in (above, above + devices_in_all) if given < b <= GLOBAL_BATCH_LIMIT]
    found = list(islice(filter(fits, more), 1))
    fewer = most_below(fits, given)
    found += [] if fewer is None else [fewer]
    if found:
        needed = min(found, key=lambda batch: (abs(batch - given), batch))
        yield Relaxation(
            field="job.global_batch_size",
            given=given,
            needed=needed,
            description=f"train on {counted(needed, 'sequence')} a step in place of {given}",
        )


def _shorter_sequences(request: Request, checks: Checks) -> Iterator[Relaxation]:
    """Yield the longest sequence below the given that is found, in steps."""
    given = request.job.resolved.sequence_length or 1
    step = min(_SEQUENCE_STEP, 1 << max((given // 8).bit_length() - 1, 0))
    needed = most_below(
        lambda length: checks.fits(with_job(request, sequence_length=length)),
        given,
        floor=_LEAST_SEQUENCE,
        finest=step,
    )
    if needed is not None:
        found = _sequence(given, needed)
        words = f"{found.description} (in steps of {step})"
        yield found.model_copy(update={"description": words})


def _sequence(given: int, needed: int) -> Relaxation:
    return Relaxation(
        field="job.sequence_length",
        given=given,
        needed=needed,
        description=f"train on sequences of {needed} tokens in place of {given}",
    )


def _leaner_optimizers(request: Request, checks: Checks) -> Iterator[Relaxation]:
    given = request.job.resolved.optimizer
    for optimizer in _LEANER:
        if optimizer is not given and checks.fits(with_job(request, optimizer=optimizer)):
            yield _optimizer(given, optimizer)
            return


def _optimizer(given: Optimizer, needed: Optimizer) -> Relaxation:
    return Relaxation(
        field="job.optimizer",
        given=given.value,
        needed=needed.value,
        description=f"use {needed.value} in place of {given.value}",
    )


def _pairs(request: Request, checks: Checks) -> Iterator[Relaxation]:
    """Yield changes of two kinds that are enough together, the cheapest first.

    The first of the two is made whole, the second as small as it can be beside it. The time is
    shared by all pairs.
    """
    pairs = [(first, second) for first in _firsts(request) for second in _SECONDS]
    for index, (first, second) in enumerate(pairs):
        share = max(checks.seconds_left, 0.0) / (len(pairs) - index)
        own = Checks(feasible=checks.feasible, deadline=time.perf_counter() + share)
        change, changed = first
        for other in second(changed, own):
            if other.field != change.field:
                yield _together(change, other)
        checks.is_cut = checks.is_cut or own.is_cut


def _firsts(request: Request) -> Iterator[tuple[Relaxation, Request]]:
    """Yield the changes that a pair may start with, and the request with each."""
    job, narrowed = request.job.resolved, _narrowed(request)
    if narrowed:
        yield _lift(job.limits, narrowed), _lifted(request, narrowed)
    for optimizer in _LEANER[:1]:
        if job.optimizer is Optimizer.ADAMW:
            yield _optimizer(job.optimizer, optimizer), with_job(request, optimizer=optimizer)
    given = job.sequence_length or 1
    for length in (given // 2, given // 8):
        if length >= _LEAST_SEQUENCE:
            yield _sequence(given, length), with_job(request, sequence_length=length)


def _together(one: Relaxation, other: Relaxation) -> Relaxation:
    return Relaxation(
        field="request",
        given={one.field: one.given, other.field: other.given},
        needed={one.field: one.needed, other.field: other.needed},
        description=f"{one.description}, and {other.description}",
    )


_FAMILIES = (
    more_nodes,
    _lifted_limits,
    _another_return,
    _less_room,
    _other_batches,
    _shorter_sequences,
    _leaner_optimizers,
    more_device_memory,
    more_host_memory,
    fewer_nodes,
)
_SECONDS = (_leaner_optimizers, more_device_memory, more_nodes)
