"""Ranks find their plan and place in the environment, or say what is missing."""

from __future__ import annotations

import pytest
import torch

from executor.environment import RankEnvironment
from executor.errors import LaunchError
from planner.schema.cluster import Cluster, NodeGroup
from planner.schema.plan import ResolvedCluster
from planner.schema.strategy import Strategy
from tests.builders import a_plan

VARIABLES = {"MESHWRIGHT_PLAN": "plan.json", "RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}


def test_rank_and_plan_are_read() -> None:
    environment = RankEnvironment.read(VARIABLES)
    assert environment.plan_path == "plan.json"
    assert (environment.rank, environment.local_rank, environment.world_size) == (3, 1, 4)


def test_ranks_of_any_launcher_train_on_what_the_plan_is_for() -> None:
    group = NodeGroup(name="cpu", device="cpu-gloo", node_count=1, devices_per_node=4)
    cluster = Cluster(name="4xcpu-gloo", node_groups=(group,))
    resolved = ResolvedCluster(given=cluster.name, resolved=cluster, digest=cluster.digest())
    assert RankEnvironment.read(VARIABLES).device(a_plan(cluster=resolved)).type == "cpu"


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_plan_for_gpus_is_not_trained_on_the_processor_without_a_word() -> None:
    variables = {**VARIABLES, "LOCAL_WORLD_SIZE": "4"}
    with pytest.raises(LaunchError, match=r"4 ranks here on h100.*got 0 CUDA devices"):
        RankEnvironment.read(variables).device(a_plan())


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({}, None),
        ({"LOCAL_WORLD_SIZE": "2"}, 2),
        ({"SLURM_NTASKS_PER_NODE": "2"}, 2),
        ({"SLURM_NTASKS_PER_NODE": "2(x2)"}, None),
    ],
)
def test_how_many_ranks_a_node_has_is_said_or_unknown(
    said: dict[str, str], expected: int | None
) -> None:
    assert RankEnvironment.read({**VARIABLES, **said}).local_world_size == expected


def test_a_script_outside_the_launcher_is_told_how_to_start() -> None:
    with pytest.raises(LaunchError, match=r"MESHWRIGHT_PLAN.*python -m executor\.launcher"):
        RankEnvironment.read({})


@pytest.mark.parametrize("given", ["ten", "0", "-3", "2.5", ""])
def test_a_limit_of_steps_that_is_none_is_named(given: str) -> None:
    with pytest.raises(LaunchError, match=r"MESHWRIGHT_STEP_LIMIT.*whole number from 1 on"):
        RankEnvironment.read({**VARIABLES, "MESHWRIGHT_STEP_LIMIT": given})


def test_a_run_has_no_limit_of_steps_unless_one_is_set() -> None:
    assert RankEnvironment.read(VARIABLES).step_limit is None
    assert RankEnvironment.read({**VARIABLES, "MESHWRIGHT_STEP_LIMIT": "3"}).step_limit == 3


def test_a_world_of_another_size_than_the_plan_is_refused() -> None:
    environment = RankEnvironment.read(VARIABLES)
    with pytest.raises(LaunchError, match=r"multiply to 2 ranks \(got 4\); launch 2 ranks"):
        environment.check_world(Strategy(tensor_parallel_degree=2))


def test_a_world_of_the_plans_size_is_accepted() -> None:
    RankEnvironment.read(VARIABLES).check_world(Strategy(tensor_parallel_degree=4))
