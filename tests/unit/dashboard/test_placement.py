"""Where ranks lie, and with whom they form groups."""

import pytest

from api.dashboard.placement import placement
from api.dashboard.placement_view import placement_view
from planner.errors import InputError
from planner.schema.cluster import NodeGroup
from planner.schema.plan import ResolvedCluster
from tests.builders import a_cluster, a_plan, a_strategy


def a_placed_plan(**strategy):
    """Eight ranks: PP 2 x DP 2 x TP 2 on two nodes of four."""
    group = NodeGroup(name="h100", device="h100-sxm5-80gb", node_count=2, devices_per_node=4)
    cluster = a_cluster(name="two", node_groups=(group,))
    return a_plan(
        strategy=a_strategy(**strategy),
        cluster=ResolvedCluster(given="two", resolved=cluster, digest="two"),
    )


def groups_by(plan, axis):
    """Return the group of every rank, in the order of ranks."""
    return [place.groups[axis] for node in placement(plan).nodes for place in node.places if place]


def test_tensor_parallel_ranks_are_neighbours():
    assert groups_by(a_placed_plan(), "tensor") == [0, 0, 1, 1, 2, 2, 3, 3]


def test_data_parallel_ranks_are_a_tensor_group_apart():
    assert groups_by(a_placed_plan(), "shard") == [0, 1, 0, 1, 2, 3, 2, 3]


def test_stages_follow_one_another_over_the_nodes():
    stages = [
        [place.coordinates["pipeline"] for place in node.places]
        for node in placement(a_placed_plan()).nodes
    ]
    assert stages == [[0, 0, 0, 0], [1, 1, 1, 1]]


def test_only_the_pipeline_crosses_the_nodes():
    spans = {axis.name: axis.node_span for axis in placement(a_placed_plan()).axes}
    assert spans == {"tensor": 1, "shard": 1, "pipeline": 2}


def test_expert_ranks_are_the_first_of_tensor_and_shard():
    plan = a_placed_plan(expert_parallel_degree=2, expert_tensor_parallel_degree=1)
    assert groups_by(plan, "expert") == [0, 0, 1, 1, 2, 2, 3, 3]


def test_experts_that_tensor_ranks_split_lie_over_the_shards():
    plan = a_placed_plan(expert_parallel_degree=2, expert_tensor_parallel_degree=2)
    assert groups_by(plan, "expert") == [0, 1, 0, 1, 2, 3, 2, 3]


def test_stages_take_devices_of_their_own_kind():
    """The first stage sits on the second group of nodes."""
    kinds = tuple(
        NodeGroup(name=name, device=device, node_count=1, devices_per_node=4)
        for name, device in (("old", "a100-sxm4-80gb"), ("new", "h100-sxm5-80gb"))
    )
    cluster = a_cluster(name="mixed", node_groups=kinds)
    strategy = a_strategy()
    groups = ("new", "old")
    stages = tuple(
        stage.model_copy(update={"device_group": name})
        for stage, name in zip(strategy.stages, groups, strict=True)
    )
    plan = a_plan(
        strategy=strategy.model_copy(update={"stages": stages}),
        cluster=ResolvedCluster(given="mixed", resolved=cluster, digest="mixed"),
    )
    ranks = {node.node_group: [p.rank for p in node.places] for node in placement(plan).nodes}
    assert ranks == {"old": [4, 5, 6, 7], "new": [0, 1, 2, 3]}


def test_the_map_is_coloured_by_the_innermost_axis_unless_asked():
    plan = a_placed_plan()
    assert placement_view(plan).shown.name == "tensor"
    assert placement_view(plan, by="pipeline").nodes[1].cells[0].number == 1


@pytest.mark.parametrize(("by", "node"), [("colour", 0), ("expert", 0), (None, 2)])
def test_what_is_not_there_is_refused(by, node):
    with pytest.raises(InputError):
        placement_view(a_placed_plan(), by=by, first_node=node)
