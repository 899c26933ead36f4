"""Slurm: a batch script that starts a plan's ranks, one torchrun on every node.

Options are those of sbatch and srun of Slurm 22.05, which later ones keep.
"""

from __future__ import annotations

from planner.exporters.draft import first_draft
from planner.exporters.export import Export, ExportedFile
from planner.exporters.placement import placement
from planner.exporters.torchrun import PLAN_FILE, torchrun_words
from planner.schema.plan import Plan


def export_slurm(plan: Plan, target: str) -> Export:
    """Return the batch script and the plan that it applies; no placement is lost.

    Node 0 of the allocation has rank 0, as `SLURM_NODEID` says, so that the ranks of a stage lie
    on neighbouring nodes.
    """
    draft = first_draft(plan, target)
    place = placement(plan)
    words = torchrun_words(plan, node_rank="$SLURM_NODEID", address="$MASTER_ADDR")
    script = f"""#!/bin/bash
#SBATCH --job-name={plan.id}
#SBATCH --nodes={place.node_count}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={place.devices_per_node}
#SBATCH --exclusive
#SBATCH --output=%x-%j.log
# sbatch slurm.sh train.py ARGUMENTS...; the script calls meshwright.start(). Add your partition,
# account and time limit.
set -euo pipefail
export MESHWRIGHT_PLAN="$SLURM_SUBMIT_DIR/{PLAN_FILE}"
read -r MASTER_ADDR < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
export MASTER_ADDR
srun --kill-on-bad-exit=1 bash -c 'exec {" ".join(words)} "$@"' bash "${{@:-train.py}}"
"""
    files = (
        ExportedFile(name="slurm.sh", text=script),
        ExportedFile(name=PLAN_FILE, text=plan.to_json()),
    )
    return Export(target=target, files=files, losses=draft.losses, strategy=draft.strategy)
