"""Slurm: a batch script that starts a plan's ranks, one torchrun on every node.

Options are those of sbatch and srun of Slurm 22.05, which later ones keep.
"""

from __future__ import annotations

from planner.exporters.export import Export, ExportedFile
from planner.exporters.job_commands import Node
from planner.exporters.launch import Launch
from planner.exporters.placement import placement


def export_slurm(launch: Launch) -> Export:
    """Return the batch script and the files that it reads; no placement is lost.

    Node 0 of the allocation has rank 0, as `SLURM_NODEID` says, so that the ranks of a stage lie
    on neighbouring nodes.
    """
    place = placement(launch.plan)
    node = Node(rank="$SLURM_NODEID", address="$MASTER_ADDR", folder="$SLURM_SUBMIT_DIR/")
    command = launch.command(node)
    given = "".join(f"export {name}={value}; " for name, value in command.variables.items())
    script = f"""#!/bin/bash
#SBATCH --job-name={launch.plan.id}
#SBATCH --nodes={place.node_count}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={place.devices_per_node}
#SBATCH --exclusive
#SBATCH --output=%x-%j.log
# sbatch slurm.sh ARGUMENTS..., with {launch.needs}. Add your partition,
# account and time limit.
set -euo pipefail
read -r MASTER_ADDR < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
export MASTER_ADDR
srun --kill-on-bad-exit=1 bash -c '{given}{command.line}' bash "$@"
"""
    return launch.draft.exported(ExportedFile(name="slurm.sh", text=script), *launch.files)
