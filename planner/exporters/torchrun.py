"""torchrun: the words that start a plan's ranks on every node.

The rendezvous is static, since torchrun's c10d rendezvous ignores `--node-rank`
and could hand tensor-parallel neighbours to different nodes.

Source: `torch/distributed/run.py` of torch 2.13.
"""

from __future__ import annotations

from planner.exporters.placement import placement
from planner.schema.plan import Plan

PLAN_FILE = "plan.json"
PORT = 29500


def torchrun_words(plan: Plan, *, node_rank: str, address: str) -> list[str]:
    """Return torchrun's words, already quoted for a shell, up to the script."""
    place = placement(plan)
    words = [
        "torchrun",
        f"--nnodes={place.node_count}",
        f"--nproc-per-node={place.devices_per_node}",
    ]
    if place.node_count == 1:
        return [*words, "--standalone"]
    return [
        *words,
        f"--node-rank={node_rank}",
        f"--master-addr={address}",
        f"--master-port={PORT}",
    ]
