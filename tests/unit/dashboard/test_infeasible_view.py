"""The page of an infeasible answer: nearest misses first, and links that make the change."""

from urllib.parse import parse_qs, urlsplit

import pytest

from api.dashboard.infeasible_view import infeasible_view
from api.dashboard.rendering import page
from planner.requests.resolution import resolved_cluster
from planner.schema.document import parse_fields
from planner.schema.plan import Overflow, Relaxation
from tests.contract.api.solvers import an_infeasible
from tests.unit.dashboard.unlabelled import UNLABELLED


def an_overflow(**changes):
    fields = {
        "description": "TP 8",
        "limit": "device_memory",
        "stage": 0,
        "required_bytes": 100.0 * 2**30,
        "capacity_bytes": 80.0 * 2**30,
        "reason": "activations",
    }
    return Overflow(**{**fields, **changes})


def a_relaxation(**changes):
    fields = {
        "field": "job.sequence_length",
        "given": 128,
        "needed": 64,
        "description": "train on sequences of 64 tokens in place of 128",
    }
    return Relaxation(**{**fields, **changes})


def form_of(relaxation, **changes):
    """Return the form's values that the link to the changed request carries."""
    (help_,) = infeasible_view(an_infeasible(relaxations=(relaxation,), **changes)).helps
    if help_.url is None:
        return None
    return {name: values[0] for name, values in parse_qs(urlsplit(help_.url).query).items()}


def test_nearest_miss_comes_first():
    far = an_overflow(description="far", required_bytes=800.0 * 2**30)
    near = an_overflow(description="near", required_bytes=81.0 * 2**30)
    view = infeasible_view(an_infeasible(binding=(far, near)))
    assert [row.configurations for row in view.rows] == ["near", "far"]
    assert view.closest is view.rows[0]


def test_miss_is_said_in_bytes_and_as_a_ratio():
    row = infeasible_view(an_infeasible(binding=(an_overflow(),))).rows[0]
    assert (row.needs, row.has, row.excess) == ("100 GiB", "80 GiB", "1.25 times")
    assert row.limit == "device memory"


def test_broken_rule_has_no_bytes():
    rule = an_overflow(
        limit="legality", stage=None, required_bytes=None, capacity_bytes=None, reason="heads"
    )
    view = infeasible_view(an_infeasible(binding=(rule,)))
    assert (view.rows[0].needs, view.rows[0].excess, view.closest) == ("", "", None)


def test_long_lists_are_cut_and_say_so():
    view = infeasible_view(an_infeasible(binding=(an_overflow(),) * 23))
    assert (len(view.rows), view.hidden_count) == (20, 3)


def test_shorter_sequences_are_filled_in():
    values = form_of(a_relaxation())
    assert values["sequence_length"] == "64"
    assert values["global_batch_size"] == "16"
    assert values["model_name"] == "tiny"


def test_more_nodes_are_filled_in():
    change = a_relaxation(field="cluster.node_groups.0.node_count", given=1, needed=4)
    assert form_of(change)["cluster_short"] == "4x8xh100-sxm5-80gb"


def test_more_instances_of_a_cloud_are_filled_in():
    change = a_relaxation(field="cluster.node_groups.0.node_count", given=1, needed=4)
    cluster = resolved_cluster("p4d.24xlarge")
    assert form_of(change, cluster=cluster)["cluster_short"] == "4xp4d.24xlarge"


def test_a_lower_chance_and_less_headroom_are_filled_in_as_percentages():
    chance = a_relaxation(field="job.limits.fits_probability", given=0.95, needed=0.83)
    headroom = a_relaxation(field="job.limits.memory_headroom_ratio", given=0.1, needed=0.07)
    assert form_of(chance)["fits_percent"] == "83"
    assert form_of(headroom)["memory_headroom_percent"] == "7"


def test_lifted_limit_is_emptied():
    change = a_relaxation(
        field="job.limits.tensor_parallel_degree",
        given={"min": 1, "max": 1},
        needed={"min": 1, "max": 2**20},
    )
    values = form_of(change)
    assert not {"tensor_parallel_min", "tensor_parallel_max"} & set(values)


def test_what_no_short_form_says_is_filled_in_as_a_document():
    change = a_relaxation(
        field="cluster.node_groups.0.memory_bytes", given=80.0 * 2**30, needed=96.0 * 2**30
    )
    (group,) = cluster_of(form_of(change)).node_groups
    assert (group.devices_per_node, group.memory_bytes) == (8, 96.0 * 2**30)


def test_another_device_of_a_document_has_its_own_memory_and_price():
    given = resolved_cluster("8xh100-sxm5-80gb").resolved.model_dump(mode="json")
    given["node_groups"][0] |= {"memory_bytes": 40.0 * 2**30, "price_per_device_hour": 1.5}
    change = a_relaxation(
        field="cluster.node_groups.0.device", given="h100-sxm5-80gb", needed="h200-sxm5-141gb"
    )
    (group,) = cluster_of(form_of(change, cluster=resolved_cluster(given))).node_groups
    assert (group.device, group.node_count) == ("h200-sxm5-141gb", 1)
    assert (group.memory_bytes, group.price_per_device_hour) == (None, None)


def cluster_of(values):
    """Return the cluster that the form's document spells."""
    content = values["cluster_document"].encode()
    return resolved_cluster(parse_fields(content, source="it", yaml_allowed=True)).resolved


def test_change_of_two_kinds_has_no_link():
    change = a_relaxation(field="request", given={"a": 1}, needed={"a": 2})
    assert form_of(change) is None


def test_bytes_are_said_in_their_unit():
    change = a_relaxation(
        field="cluster.node_groups.0.memory_bytes", given=80.0 * 2**30, needed=96.0 * 2**30
    )
    (help_,) = infeasible_view(an_infeasible(relaxations=(change,))).helps
    assert (help_.given, help_.needed) == ("80 GiB", "96 GiB")


@pytest.mark.parametrize("is_cut", [True, False])
def test_the_page_says_whether_the_time_ran_out_while_changes_were_looked_for(is_cut):
    answer = an_infeasible(relaxations=(), relaxations_cut_by_time=is_cut)
    content = bytes(
        page("infeasible.html", view=infeasible_view(answer), **UNLABELLED).body
    ).decode()
    assert ("The time ran out before all changes were looked into" in content) is is_cut
    assert "Neither a single change nor a pair that was tried is enough" in content
