"""Where ranks lie, and with whom they form groups."""

import pytest

from api.dashboard.placement import placement
from api.dashboard.placement_view import placement_view
from planner.errors import InputError
from planner.schema.cluster import NodeGroup
from planner.schema.plan import ResolvedCluster
from planner.schema.strategy import Strategy
from tests.builders import a_cluster, a_plan, a_strategy


def a_placed_plan(**strategy):
    """Eight ranks: PP 2 x DP 2 x TP 2 on two nodes of four."""
    group = NodeGroup(name="h100", device="h100-sxm5-80gb", node_count=2, devices_per_node=4)
    cluster = a_cluster(name="two", node_groups=(group,))
    return a_plan(
        strategy=a_strategy(**strategy),
        cluster=ResolvedCluster(given="two", resolved=cluster, digest="two"),
    )


def nodes_of(plan):
    """Return all nodes with the ranks on them."""
    found = placement(plan)
    return [found.node(index) for index in range(found.node_count)]


def groups_by(plan, axis):
    """Return the group of every rank, in the order of ranks."""
    return [place.groups[axis] for node in nodes_of(plan) for place in node.places if place]


def test_tensor_parallel_ranks_are_neighbours():
    assert groups_by(a_placed_plan(), "tensor") == [0, 0, 1, 1, 2, 2, 3, 3]


def test_data_parallel_ranks_are_a_tensor_group_apart():
    assert groups_by(a_placed_plan(), "shard") == [0, 1, 0, 1, 2, 3, 2, 3]


def test_stages_follow_one_another_over_the_nodes():
    stages = [
        [place.coordinates["pipeline"] for place in node.places]
        for node in nodes_of(a_placed_plan())
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
    ranks = {node.node_group: [p.rank for p in node.places] for node in nodes_of(plan)}
    assert ranks == {"old": [4, 5, 6, 7], "new": [0, 1, 2, 3]}


def test_nodes_of_other_kinds_and_sizes_stay_unused():
    """All eight ranks are on the one node of eight; on the map 64 strips have the unused colour."""
    kinds = tuple(
        NodeGroup(name=name, device=device, node_count=count, devices_per_node=size)
        for name, device, count, size in (
            ("old", "a100-sxm4-80gb", 64, 4),
            ("new", "h100-sxm5-80gb", 1, 8),
        )
    )
    strategy = a_strategy()
    stages = tuple(stage.model_copy(update={"device_group": "new"}) for stage in strategy.stages)
    plan = a_plan(
        strategy=strategy.model_copy(update={"stages": stages}),
        cluster=ResolvedCluster(
            given="mixed", resolved=a_cluster(name="mixed", node_groups=kinds), digest="mixed"
        ),
    )
    *unused, last = nodes_of(plan)
    assert {node.places for node in unused} == {(None, None, None, None)}
    assert (last.device, [place.rank for place in last.places]) == (
        "h100-sxm5-80gb",
        list(range(8)),
    )
    paths = dict(placement_view(plan).map.paths)
    assert paths.pop("unused").count("h16v5h-16z") == 64
    assert paths == {"group-0": "M1054 7h16v5h-16z", "group-1": "M1070 7h16v5h-16z"}


def test_the_map_is_coloured_by_the_innermost_axis_unless_asked():
    plan = a_placed_plan()
    assert placement_view(plan).shown.name == "tensor"
    assert placement_view(plan, by="pipeline").nodes[1].cells[0].number == 1


@pytest.mark.parametrize(("by", "node"), [("colour", 0), ("expert", 0), (None, 2)])
def test_what_is_not_there_is_refused(by, node):
    with pytest.raises(InputError):
        placement_view(a_placed_plan(), by=by, first_node=node)


def a_plan_of_many_nodes(**strategy):
    """512 ranks on 128 nodes of four."""
    group = NodeGroup(name="h100", device="h100-sxm5-80gb", node_count=128, devices_per_node=4)
    cluster = a_cluster(name="many", node_groups=(group,))
    degrees = {"pipeline_parallel_degree": 1, "tensor_parallel_degree": 1, **strategy}
    whole = Strategy(**degrees).resolved(block_count=4, global_batch_size=512)
    return a_plan(
        strategy=whole,
        cluster=ResolvedCluster(given="many", resolved=cluster, digest="many"),
    )


def test_an_axis_with_one_group_colours_nothing_by_itself():
    """All 512 ranks shard together; tensor ranks would be told apart."""
    assert placement_view(a_plan_of_many_nodes(data_parallel_shard_degree=512)).shown is None
    both = a_plan_of_many_nodes(tensor_parallel_degree=4, data_parallel_shard_degree=128)
    assert placement_view(both).shown.name == "tensor"


def test_a_map_of_many_nodes_shows_the_stages_of_a_pipeline():
    plan = a_plan_of_many_nodes(
        tensor_parallel_degree=4, data_parallel_shard_degree=64, pipeline_parallel_degree=2
    )
    assert placement_view(plan).shown.name == "pipeline"


def test_a_map_of_all_nodes_leads_to_each():
    """A node of four is 16 units wide with 2 between: 64 of 18 a row, so that two rows have all."""
    plan = a_plan_of_many_nodes(tensor_parallel_degree=2, data_parallel_shard_degree=256)

    found = placement_view(plan, first_node=64)

    assert (found.map.width, found.map.height) == (64 * 18 - 2, 12)
    (band,) = found.map.bands
    assert (band.first_node, band.last_node, band.is_shown) == (0, 127, True)
    assert band.url == "/plans/plan-0123456789abcdef/placement?by=tensor&node=0"
    colours = dict(found.map.paths)
    assert sorted(colours) == [f"group-{number}" for number in range(8)]
    assert colours["group-0"].startswith("M0 0h8v5h-8z")
    assert placement_view(a_placed_plan()).map is None
