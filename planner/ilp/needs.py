"""Needs: the memory with which a configuration fits, found by giving it more until it does.

Bounds of memory (`planner.ilp.bounds`) take every rank's least transient beside its least bytes and
may be under the limit where nothing fits. Here packings decide, so that what is needed is always
more than what there is, and it is known which of the two memories it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from planner.ilp.effort import Effort
from planner.ilp.fitting import fitted
from planner.ilp.instance import Evaluation, Instance, evaluate

_TOLERANCE = 0.01
_FIRST_RATIO = 1.0 / 16.0
_DOUBLINGS_MOST = 12

_Added = Callable[[float], float | None]
"""Returns how much of the added bytes a plan with them takes, None where none was found."""


def least_host_bytes(instance: Instance, *, effort: Effort) -> float | None:
    """Return the least host bytes of the fullest share with which a plan is found, to a per cent.

    None where none is found with the effort, however much there is.
    """
    own = instance.host_capacity_bytes

    def taken(added: float) -> float | None:
        found = _evaluated(replace(instance, host_capacity_bytes=own + added), effort)
        return None if found is None else float((found.host_bytes - own).max())

    most = _most_host_bytes(instance)
    first = taken(most)
    return None if first is None else float(own.max()) + _halved(taken, 0.0, first, instance)


def least_device_bytes(instance: Instance, *, effort: Effort) -> float | None:
    """Return the least bytes of a device with which a plan is found, to a per cent.

    Host memory is taken to be boundless. None where no plan is found with the effort.
    """
    own = instance.capacity_bytes
    roomy = replace(
        instance, host_capacity_bytes=instance.host_capacity_bytes + _most_host_bytes(instance)
    )

    def taken(added: float) -> float | None:
        found = _evaluated(replace(roomy, capacity_bytes=own + added), effort)
        return None if found is None else float((found.memory_bytes - own).max())

    low, high = 0.0, max(float(own.max()), 1.0) * _FIRST_RATIO
    for _ in range(_DOUBLINGS_MOST):
        first = taken(high)
        if first is not None:
            return float(own.max()) + _halved(taken, low, first, instance)
        low, high = high, 2.0 * high
    return None


def _halved(taken: _Added, low: float, high: float, instance: Instance) -> float:
    """Return the least added bytes above `low` that are found to be enough, to a per cent."""
    while high - low > _TOLERANCE * max(high, float(instance.capacity_bytes.max())):
        middle = (low + high) / 2.0
        found = taken(middle)
        low, high = (middle, high) if found is None else (low, found)
    return high


def _evaluated(instance: Instance, effort: Effort) -> Evaluation | None:
    """Return what a plan of the instance takes, None where none is found with the effort."""
    if effort.is_over:
        return None
    assignment = fitted(instance, effort=effort).assignment
    return None if assignment is None else evaluate(instance, assignment)


def _most_host_bytes(instance: Instance) -> float:
    """Return host bytes that no rank needs more of."""
    return sum(kind.count * float(kind.host.max(initial=0.0)) for kind in instance.kinds)
