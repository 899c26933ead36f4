"""Which agent gets which ranks of a plan."""

from __future__ import annotations

import pytest

from api.services.placement import Candidate, assignments, needs, remaining_cluster
from planner.schema.cluster import Cluster, NodeGroup
from planner.schema.plan import ResolvedCluster
from tests.builders import a_plan, a_strategy


def a_group(name, device, **changes):
    fields = {"name": name, "device": device, "node_count": 1, "devices_per_node": 4}
    return NodeGroup(**{**fields, **changes})


def planned(*groups, stages=(), **degrees):
    """A plan over node groups whose stages lie on the groups named."""
    cluster = Cluster(name="mixed", node_groups=groups)
    resolved = ResolvedCluster(given="mixed", resolved=cluster, digest=cluster.digest())
    strategy = a_strategy(**degrees)
    placed = [
        stage.model_copy(update={"device_group": name})
        for stage, name in zip(strategy.stages, stages or [None] * 2, strict=True)
    ]
    return a_plan(cluster=resolved, strategy=strategy.model_copy(update={"stages": tuple(placed)}))


def an_agent(name, device, count=4, **changes):
    fields = {
        "agent_id": name,
        "address": name,
        "location": (),
        "device_counts": {device: count},
        "commands": frozenset({"train"}),
        "node_count": 1,
    }
    return Candidate(**{**fields, **changes})


def placed(plan, *agents):
    found = assignments(plan, agents, command="train")
    return found and [
        (part.candidate.agent_id, part.node_rank, part.first_rank, part.rank_count)
        for part in found
    ]


def test_nodes_follow_the_pipeline_not_the_document():
    """The first stage is on the second group, so that its node is node 0."""
    groups = (a_group("old", "a100-sxm4-80gb"), a_group("new", "h100-sxm5-80gb"))
    plan = planned(*groups, stages=("new", "old"))

    agents = an_agent("a", "a100-sxm4-80gb"), an_agent("b", "h100-sxm5-80gb")

    assert placed(plan, *agents) == [("b", 0, 0, 4), ("a", 1, 4, 4)]


def test_groups_of_one_kind_stand_together():
    """A kind goes by the name of its first group."""
    groups = (
        a_group("new", "h100-sxm5-80gb", devices_per_node=2),
        a_group("old", "a100-sxm4-80gb"),
        a_group("more", "h100-sxm5-80gb", devices_per_node=2),
    )

    found = needs(planned(*groups, stages=("old", "new")))

    assert [(need.group.name, need.first_rank) for need in found] == [
        ("old", 0),
        ("new", 4),
        ("more", 6),
    ]


def test_a_kind_that_the_pipeline_comes_back_to_has_nodes_on_both_sides():
    groups = (a_group("new", "h100-sxm5-80gb", node_count=3), a_group("old", "a100-sxm4-80gb"))
    degrees = {"pipeline_parallel_degree": 4, "micro_batch_count": 8}
    plan = planned(*groups, stages=("new", "old", "new", "new"), **degrees)

    found = [(n.group.name, n.node_count, n.first_rank, n.rank_count) for n in needs(plan)]

    assert found == [("new", 1, 0, 4), ("old", 1, 4, 4), ("new", 2, 8, 8)]


def test_a_plan_is_placed_whole_or_not_at_all():
    plan = planned(a_group("nodes", "h100-sxm5-80gb", node_count=2))

    assert placed(plan, an_agent("a", "h100-sxm5-80gb")) is None


@pytest.mark.parametrize(
    "changes",
    [{"commands": frozenset({"other"})}, {"device_counts": {"h100-sxm5-80gb": 3}}],
)
def test_an_agent_that_does_not_fit_is_passed_over(changes):
    plan = planned(a_group("nodes", "h100-sxm5-80gb", node_count=2))
    unfit = an_agent("a", "h100-sxm5-80gb", **changes)
    fit = [an_agent(name, "h100-sxm5-80gb") for name in ("b", "c")]

    assert placed(plan, unfit, *fit) == [("b", 0, 0, 4), ("c", 1, 4, 4)]


def test_an_agent_of_a_scheduler_spans_the_nodes_that_are_left():
    plan = planned(a_group("nodes", "h100-sxm5-80gb", node_count=2))
    one, many = an_agent("a", "h100-sxm5-80gb"), an_agent("b", "h100-sxm5-80gb", node_count=9)

    assert placed(plan, one, many) == [("a", 0, 0, 4), ("b", 1, 4, 4)]
    assert placed(plan, many) == [("b", 0, 0, 8)]


def test_what_is_left_of_a_cluster_has_the_nodes_that_agents_stand_for():
    cluster = Cluster(
        name="mixed",
        node_groups=(
            a_group("new", "h100-sxm5-80gb", node_count=3),
            a_group("old", "a100-sxm4-80gb"),
        ),
    )
    agents = [an_agent(name, "h100-sxm5-80gb") for name in ("a", "b")]

    left = remaining_cluster(cluster, agents, command="train")

    assert [(g.name, g.node_count) for g in left.node_groups] == [("new", 2)]
    assert left.name == "mixed less 2 nodes"
    assert remaining_cluster(cluster, [], command="train") is None
