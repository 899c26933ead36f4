"""Slurm's directives in a batch script: the variables that they make Slurm set for it.

Source: sbatch(1) of Slurm 24.05, input options and output environment variables.
"""

from __future__ import annotations

import re

_DIRECTIVE = re.compile(r"^#SBATCH\s+(.+)$", re.MULTILINE)
_OPTIONS = {
    "nodes": re.compile(r"(?:--nodes|-N)[=\s]+(\d{1,6})\b"),
    "devices": re.compile(
        r"(?:--gpus-per-node|--gres)[=\s]+(?:gpu:)?(?:[a-zA-Z][\w.-]*:)?(\d{1,3})\b"
    ),
    "tasks": re.compile(r"--ntasks-per-node[=\s]+(\d{1,4})\b"),
}
_VARIABLES = {
    "nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "devices": ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"),
    "tasks": ("SLURM_NTASKS_PER_NODE",),
}


def slurm_variables(text: str) -> dict[str, str]:
    """Return the variables that Slurm sets in a job of such directives."""
    lines = "\n".join(_DIRECTIVE.findall(text))
    found = {name: match[1] for name, option in _OPTIONS.items() if (match := option.search(lines))}
    variables = {variable: value for name, value in found.items() for variable in _VARIABLES[name]}
    if "nodes" in found and "tasks" in found:
        tasks = str(int(found["nodes"]) * int(found["tasks"]))
        variables |= {"SLURM_NTASKS": tasks, "SLURM_NPROCS": tasks}
    return variables
