"""What states take at least: no plan has less, and what is more than all memory fits nowhere."""

import pytest

from planner.ilp.problem import NotFound
from planner.planning import estimate
from planner.requests.inquiry import Inquiry
from planner.requests.least_states import least_state_bytes, states_exceed_memory
from planner.requests.resolution import resolved_cluster, resolved_model, resolved_request
from planner.requests.variation import with_limits
from planner.schema.job import DegreeLimit, Job
from planner.schema.strategy import Strategy


def a_request(model="llama-3-70b", cluster="8xh100-sxm5-80gb", **job):
    return resolved_request(resolved_model(model), resolved_cluster(cluster), Job(**job))


@pytest.mark.parametrize(
    ("job", "bytes_each"),
    [
        ({}, 16.0),  # fp32 parameters and gradients, and two moments
        ({"optimizer": "sgd"}, 12.0),
        ({"optimizer": "adafactor"}, 8.1),
        ({"states_in_16_bits": True}, 8.0),
        ({"stack": "megatron"}, 18.0),  # 2 + 4 + 12
    ],
)
def test_states_take_so_many_bytes_a_parameter(job, bytes_each):
    request = a_request(**job)
    least = least_state_bytes(request, request.hardware.kinds[0])
    assert least == pytest.approx(bytes_each * 70_553_706_496)


def test_adapters_take_states_and_the_frozen_base_what_it_is_stored_in():
    """Rank 16 on all linears of Llama-3-8B is 41.9 million parameters."""
    request = a_request("llama-3-8b", adapters={"rank": 16, "base_bits": 16})
    least = least_state_bytes(request, request.hardware.kinds[0])
    assert least == pytest.approx(2.0 * 8_030_261_248 + 16.0 * 41_943_040, rel=1e-3)


STRATEGIES = (
    Strategy(data_parallel_shard_degree=8, zero_stage=3, activation_checkpointing="full"),
    Strategy(tensor_parallel_degree=8),
    Strategy(pipeline_parallel_degree=8, offload=("optimizer",)),
    Strategy(
        tensor_parallel_degree=2,
        data_parallel_shard_degree=4,
        zero_stage=3,
        offload=("optimizer", "parameters"),
    ),
    Strategy(data_parallel_shard_degree=4, data_parallel_replicate_degree=2, zero_stage=2),
    Strategy(context_parallel_degree=8, zero_stage=3),
)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("batch", [8, 64])
def test_no_strategy_holds_less_on_all_devices_and_hosts(strategy, batch):
    """A batch of 8 is one micro-batch, whose gradients come late."""
    request = a_request("llama-3-8b", global_batch_size=batch)
    job = request.job.resolved
    priced = estimate(request.model, request.cluster, job, strategy)
    ranks = 8 // len(priced.prediction.stages)
    held = sum(
        ranks * (stage.peak_memory_bytes + stage.host_memory_bytes)
        for stage in priced.prediction.stages
    )
    assert held >= least_state_bytes(request, request.hardware.kinds[0])


@pytest.mark.parametrize(
    ("cluster", "optimizer", "exceeds"),
    [
        ("8xh100-sxm5-80gb", "adamw", False),  # 1.03 TiB of states; hosts hold 1.56 TiB
        ("1xh100-sxm5-80gb", "adamw", True),
        ("8xrtx-4090-24gb", "adamw", True),
        ("8xrtx-4090-24gb", "adafactor", False),
    ],
)
def test_states_exceed_memory_where_devices_and_hosts_hold_less(cluster, optimizer, exceeds):
    request = a_request(cluster=cluster, optimizer=optimizer)
    assert states_exceed_memory(request) is exceeds
    if exceeds:
        found = Inquiry.within(60.0).search(request, is_any_welcome=True)
        assert isinstance(found, NotFound)
        assert found.proven


def test_hosts_count_only_where_states_may_go_there():
    """70 G parameters of 16 bytes: 1.03 TiB, of which eight H100 hold half."""
    request = a_request()
    assert states_exceed_memory(with_limits(request, offload=()))
    assert not states_exceed_memory(with_limits(request, zero_stages=(3,)))
    alone = DegreeLimit(min=1, max=1)
    assert not states_exceed_memory(with_limits(request, tensor_parallel_degree=alone))
