"""Cluster and job: what they add up to, and what they refuse."""

import pytest

from planner.errors import DocumentError
from planner.schema.cluster import Cluster
from planner.schema.job import DegreeLimit, Job, Limits
from tests.builders import a_cluster, a_model

GROUP = {"name": "g", "device": "h100-sxm5-80gb", "node_count": 2, "devices_per_node": 8}
LEVEL = {"name": "l", "bandwidth_bytes_per_second": 1e9, "latency_seconds": 1e-6}


def refusal(**fields: object) -> DocumentError:
    """Return how a cluster with `fields` changed is refused."""
    whole = {"name": "c", "node_groups": [GROUP], **fields}
    with pytest.raises(DocumentError) as caught:
        Cluster.from_fields(whole, source="cluster.yaml")
    return caught.value


def test_cluster_holds_the_devices_of_all_groups():
    groups = [GROUP, {**GROUP, "name": "other", "node_count": 3}]
    assert Cluster.from_fields({"name": "c", "node_groups": groups}, source="it").device_count == 40


def test_zero_nodes_are_refused_by_name_and_value():
    error = refusal(node_groups=[{**GROUP, "node_count": 0}])
    assert (error.field, error.value) == ("node_groups.0.node_count", 0)


def test_cluster_without_groups_is_refused():
    assert refusal(node_groups=[]).field == "node_groups"


@pytest.mark.parametrize("bandwidth", [-1, 0, "-3 GB/s", "fast"])
def test_bandwidth_must_be_a_positive_quantity(bandwidth):
    error = refusal(levels=[{**LEVEL, "bandwidth_bytes_per_second": bandwidth}])
    assert error.field == "levels.0.bandwidth_bytes_per_second"


def test_groups_must_have_different_names():
    assert "different names" in refusal(node_groups=[GROUP, GROUP]).problem


def test_a_cluster_of_no_levels_is_refused():
    """Absent they are the profile's; an empty list would connect nothing."""
    assert refusal(levels=[]).field == "levels"


def test_more_than_a_million_devices_are_refused():
    groups = [{**GROUP, "node_count": 2**17}, {**GROUP, "name": "one more", "node_count": 1}]
    assert "1048584 devices, and the most is 1048576" in refusal(node_groups=groups).problem


def test_levels_must_nest():
    levels = [{**LEVEL, "device_count": 8}, {**LEVEL, "device_count": 12}]
    assert "not a multiple of the inner level's 8" in refusal(levels=levels).problem


def test_levels_run_from_innermost_to_outermost():
    levels = [{**LEVEL, "device_count": 16}, {**LEVEL, "device_count": 8}]
    assert "not a multiple" in refusal(levels=levels).problem


def test_only_the_outermost_level_may_leave_its_size_out():
    levels = [LEVEL, {**LEVEL, "device_count": 8}]
    assert "only the outermost level" in refusal(levels=levels).problem


def test_built_cluster_is_one_node_of_eight():
    assert a_cluster().device_count == 8


def test_model_counts_the_blocks_of_all_runs():
    run = a_model().runs[0]
    assert a_model(runs=(run, run)).block_count == 8


def test_bare_number_fixes_a_degree():
    limits = Limits.model_validate({"tensor_parallel_degree": 4})
    assert limits.tensor_parallel_degree == DegreeLimit(min=4, max=4)


def test_degree_limit_allows_its_ends_and_nothing_beyond():
    limit = DegreeLimit(min=2, max=4)
    assert [limit.allows(degree) for degree in (1, 2, 4, 5)] == [False, True, True, False]


def test_inverted_interval_is_refused_with_both_ends():
    with pytest.raises(ValueError, match="min 4 exceeds max 2"):
        DegreeLimit(min=4, max=2)


@pytest.mark.parametrize(
    "fields",
    [
        {"precision": "bf17"},
        {"global_batch_size": 0},
        {"sequence_length": -1},
        {"global_batch_size": 2**30},
        {"limits": {"memory_headroom_ratio": 1}},
        {"limits": {"solver_seconds": 0}},
        {"limits": {"zero_stages": []}},
        {"limits": {"zero_stages": [4]}},
        {"limits": {"activation_checkpointing": []}},
        {"limits": {"tensor_parallel_degree": True}},
    ],
)
def test_job_refuses_what_cannot_be_meant(fields):
    with pytest.raises(DocumentError):
        Job.from_fields(fields, source="job.yaml")


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"global_batch_size": True}, "global_batch_size"),
        ({"limits": {"memory_headroom_ratio": False}}, "limits.memory_headroom_ratio"),
        ({"limits": {"zero_stages": [2, False]}}, "limits.zero_stages.1"),
        ({"limits": {"tensor_parallel_degree": {"max": True}}}, "limits.tensor_parallel_degree"),
    ],
)
def test_true_and_false_are_no_numbers(fields, name):
    with pytest.raises(DocumentError) as caught:
        Job.from_fields(fields, source="job.yaml")
    assert caught.value.field.startswith(name)


@pytest.mark.parametrize("value", [0, 1, 0.0, "true", "yes", None])
def test_what_is_no_truth_value_is_refused(value):
    with pytest.raises(DocumentError, match=r"fused_attention: is neither true nor false"):
        Job.from_fields({"fused_attention": value}, source="job")
