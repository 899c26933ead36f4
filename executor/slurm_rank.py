"""Slurm rank: what a task of `srun` is told, under the names by which torch's ranks find it.

Source: "Output environment variables" of https://slurm.schedmd.com/srun.html. A batch script itself
is no task: it has none of a step's variables.
"""

from __future__ import annotations

from collections.abc import Mapping

from executor.errors import LaunchError

_NAMES = {
    "RANK": "SLURM_PROCID",
    "LOCAL_RANK": "SLURM_LOCALID",
    "WORLD_SIZE": "SLURM_STEP_NUM_TASKS",
}
_ADDRESS, _PORT = "MASTER_ADDR", "MASTER_PORT"
_FIRST_PORT, _PORT_COUNT = 15_000, 15_000  # below those that systems give to whoever asks
_STEPS_OF_A_JOB = 16  # whose ports differ


def rank_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return what a rank needs and is not told yet, none where no task of a Slurm step starts it.

    Raises:
        LaunchError: if nothing says where ranks of several nodes meet.
    """
    if "RANK" in variables or any(name not in variables for name in _NAMES.values()):
        return {}
    found = {name: variables[given] for name, given in _NAMES.items()}
    if _ADDRESS not in variables:
        if variables.get("SLURM_STEP_NUM_NODES") != "1":
            raise LaunchError(
                "is not set, and ranks of several nodes meet there",
                field=_ADDRESS,
                remedy=f'write export {_ADDRESS}=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | '
                "head -n 1) before srun",
            )
        found[_ADDRESS] = "127.0.0.1"
    if _PORT not in variables:
        job, step = (int(variables.get(f"SLURM_{kind}_ID", "0")) for kind in ("JOB", "STEP"))
        found[_PORT] = str(_FIRST_PORT + (job * _STEPS_OF_A_JOB + step) % _PORT_COUNT)
    return found
