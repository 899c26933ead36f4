"""CPU ranks under Accelerate, which shards on accelerators alone, known by their kind."""

from __future__ import annotations

from accelerate.state import PartialState
from accelerate.utils import DistributedType

from planner.exporters.draft import Draft
from planner.exporters.fully_sharded import is_sharded


def let_cpu_ranks_shard(draft: Draft) -> None:
    """Let Accelerate, once it has met its ranks, shard a model of a sharded plan on CPU ranks.

    It then does as on any kind of accelerator that needs no package of its own: the device stays
    the CPU, and collectives gloo's.
    Source: accelerate 1.15, `state.py`, `AcceleratorState.__init__` and `set_device`.
    """
    met = PartialState._shared_state  # noqa: SLF001 - what all its states are made of
    is_on_cpu = met.get("distributed_type") is DistributedType.MULTI_CPU
    if is_on_cpu and (is_sharded(draft) or draft.strategy.tensor_parallel_degree > 1):
        met["distributed_type"] = DistributedType.MULTI_HPU
