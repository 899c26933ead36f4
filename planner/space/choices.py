"""Choices: the options of one layer that are legal and that the job's limits allow.

Of the 4 x 3 x 8 combinations of ZeRO stage, checkpointing and offload those are kept that mean
something: parameters are offloaded only where they are sharded (stage 3). That leaves 60 choices
of a block, and 10 of the embedding or the head, which have no activations to keep. On NVMe, all
that is offloaded is sharded so.
"""

from __future__ import annotations

from itertools import combinations

from planner.cost.configuration import Choice
from planner.schema.job import Limits, OffloadStore
from planner.schema.strategy import ActivationCheckpointing, Offload


def block_choices(
    limits: Limits, store: OffloadStore = OffloadStore.HOST, *, offloads_all: bool = False
) -> tuple[Choice, ...]:
    """Return the choices of a block, in a fixed order; with `offloads_all`, each offloads the same.

    That is everything that the limits allow.
    """
    return tuple(
        Choice(zero_stage=zero, activation_checkpointing=kept, offload=offload)
        for zero in sorted(set(limits.zero_stages))
        for kept in _ordered_checkpointing(limits)
        for offload in _offloads(limits, zero, activations=True, whole=offloads_all)
        if is_legal_in(store, zero, offload)
    )


def edge_choices(
    limits: Limits, store: OffloadStore = OffloadStore.HOST, *, offloads_all: bool = False
) -> tuple[Choice, ...]:
    """Return the choices of the embedding and of the head, in a fixed order."""
    return tuple(
        Choice(zero_stage=zero, offload=offload)
        for zero in sorted(set(limits.zero_stages))
        for offload in _offloads(limits, zero, activations=False, whole=offloads_all)
        if is_legal_in(store, zero, offload)
    )


def is_legal_offload(zero_stage: int, offload: tuple[Offload, ...]) -> bool:
    """Return whether the offload goes with the ZeRO stage: parameters only when sharded."""
    return Offload.PARAMETERS not in offload or zero_stage == 3


def is_legal_in(store: OffloadStore, zero_stage: int, offload: tuple[Offload, ...]) -> bool:
    """Return whether the store takes what is offloaded: NVMe takes what is sharded whole alone.

    Source: DeepSpeed's configuration (`offload_optimizer`, `offload_param`): NVMe needs stage 3.
    """
    return store is OffloadStore.HOST or not offload or zero_stage == 3


def _ordered_checkpointing(limits: Limits) -> tuple[ActivationCheckpointing, ...]:
    allowed = set(limits.activation_checkpointing)
    return tuple(kept for kept in ActivationCheckpointing if kept in allowed)


def _offloads(
    limits: Limits, zero_stage: int, *, activations: bool, whole: bool
) -> tuple[tuple[Offload, ...], ...]:
    """Return the sets of offloads that the limits and the stage allow, smallest first.

    Of a `whole` there is one, of everything that the limits have.
    """
    allowed = [
        item
        for item in Offload
        if item in limits.offload and (activations or item is not Offload.ACTIVATIONS)
    ]
    if whole:
        return (tuple(allowed),)
    sets = [chosen for size in range(len(allowed) + 1) for chosen in combinations(allowed, size)]
    return tuple(chosen for chosen in sets if is_legal_offload(zero_stage, chosen))
