"""A task of srun is a rank without a wrapper that renames what Slurm tells it."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="no package torch")

from executor.errors import LaunchError
from executor.slurm_rank import rank_variables

TASK = {
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NUM_NODES": "1",
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "2",
}


def test_a_task_of_one_node_is_told_all() -> None:
    assert rank_variables(TASK) == {
        "RANK": "3",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "4",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "15114",
    }


def test_what_the_script_has_set_stays() -> None:
    own = {"MASTER_ADDR": "node-a", "MASTER_PORT": "29500"}
    assert rank_variables({**TASK, **own, "SLURM_STEP_NUM_NODES": "2"}).keys().isdisjoint(own)


@pytest.mark.parametrize("own", [{"RANK": "0"}, {"SLURM_STEP_NUM_TASKS": None}])
def test_another_launcher_or_a_batch_script_is_no_task(own: dict[str, str | None]) -> None:
    """A batch script has a rank of Slurm's too, and is alone."""
    given = {name: value for name, value in {**TASK, **own}.items() if value is not None}
    assert rank_variables(given) == {}


def test_several_nodes_need_an_address() -> None:
    with pytest.raises(LaunchError, match=r"MASTER_ADDR: is not set.*scontrol show hostnames"):
        rank_variables({**TASK, "SLURM_STEP_NUM_NODES": "2"})
