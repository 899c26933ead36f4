"""torchrun: the command that starts a plan's ranks on every node.

The plan itself goes along: `executor.launcher` and `meshwright.start()` apply all of it, so that
nothing is lost. The rendezvous is static, since torchrun's c10d rendezvous ignores `--node-rank`
and could hand tensor-parallel neighbours to different nodes.

Source: `torch/distributed/run.py` of torch 2.13.
"""

from __future__ import annotations

import shlex

from planner.exporters.draft import first_draft
from planner.exporters.export import Export, ExportedFile
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


def export_torchrun(plan: Plan, target: str) -> Export:
    """Return a shell script to be run on every node, and the plan that it applies."""
    draft = first_draft(plan, target)
    words = torchrun_words(plan, node_rank='"${NODE_RANK}"', address='"${MASTER_ADDR}"')
    several = placement(plan).node_count > 1
    lines = [
        "#!/usr/bin/env bash",
        f"# Plan {plan.id}: run this on every node, with a script that calls meshwright.start().",
        "set -euo pipefail",
    ]
    if several:
        lines += [
            ': "${NODE_RANK:?set it to the number of this node, from 0}"',
            ': "${MASTER_ADDR:?set it to the address of node 0}"',
        ]
    lines += [
        f"export MESHWRIGHT_PLAN={shlex.quote(PLAN_FILE)}",
        " ".join(["exec", *words, '"${@:-train.py}"']),
    ]
    files = (
        ExportedFile(name="torchrun.sh", text="\n".join(lines) + "\n"),
        ExportedFile(name=PLAN_FILE, text=plan.to_json()),
    )
    return Export(target=target, files=files, losses=draft.losses, strategy=draft.strategy)
