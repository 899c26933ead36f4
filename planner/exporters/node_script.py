"""Node script: the shell script that is run on every node by hand, or by a launcher of one's own.

The plan itself goes along where the executor runs it: `executor.launcher` and `meshwright.start()`
apply all of it, so that nothing is lost.
"""

from __future__ import annotations

from planner.exporters.export import Export, ExportedFile
from planner.exporters.job_commands import Node
from planner.exporters.launch import Launch
from planner.exporters.placement import placement


def export_node_script(launch: Launch) -> Export:
    """Return a shell script to be run on every node, and the files that it reads."""
    command = launch.command(Node(rank='"${NODE_RANK}"', address='"${MASTER_ADDR}"'))
    lines = [
        "#!/usr/bin/env bash",
        f"# Plan {launch.plan.id}: run this on every node, with {launch.needs}.",
        "set -euo pipefail",
    ]
    if placement(launch.plan).node_count > 1:
        lines += [
            ': "${NODE_RANK:?set it to the number of this node, from 0}"',
            ': "${MASTER_ADDR:?set it to the address of node 0}"',
        ]
    lines += [
        *(f"export {name}={value}" for name, value in command.variables.items()),
        command.line,
    ]
    script = ExportedFile(name="torchrun.sh", text="\n".join(lines) + "\n")
    return launch.draft.exported(script, *launch.files)
