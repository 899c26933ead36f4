"""States on NVMe: streams through the host, room on the drives, and who can do it at all."""

from __future__ import annotations

from typing import Any

import pytest

from planner.cost.step import predict
from planner.errors import InputError
from planner.hardware import cluster_hardware
from planner.importers.clusters import cluster_from_fields
from planner.importers.models import read_model
from planner.planning import estimate, plan, resolved_cluster, resolved_model
from planner.proof.verify import verify
from planner.schema.job import Job
from planner.schema.plan import Infeasible, Plan, Prediction
from planner.schema.strategy import Offload, Strategy
from planner.workload.model import model_workload

PARAMETERS = 8_030_261_248
STATES = 12  # bytes: master copy and two moments
READ, WRITE = 5e9, 2.5e9  # of one device in a node of eight


def a_cluster(*, device_count: int = 8, host_gib: float | None = None, **nvme: float) -> Any:
    """One node of H100 with drives of 8 TB; what is given of `nvme` is for the node."""
    drives = {
        "capacity_bytes": 8e12,
        "read_bytes_per_second": 8 * READ,
        "write_bytes_per_second": 8 * WRITE,
    }
    group = {
        "name": "h100",
        "device": "h100-sxm5-80gb",
        "node_count": 1,
        "devices_per_node": device_count,
        "nvme": {**drives, **nvme},
    }
    if host_gib is not None:
        group["host_memory_bytes"] = host_gib * 2**30
    return {"name": "drives", "node_groups": [group]}


def predicted(offload: tuple[Offload, ...], *, store: str = "nvme", **nvme: float) -> Prediction:
    """Price Llama-3-8B sharded over eight devices under DeepSpeed."""
    strategy = Strategy(data_parallel_shard_degree=8, zero_stage=3, offload=offload)
    return predict(
        model_workload(read_model("llama-3-8b")[1]),
        cluster_hardware(cluster_from_fields(a_cluster(**nvme))),
        Job(global_batch_size=8, sequence_length=2048, stack="deepspeed", offload_to=store),
        strategy.resolved(block_count=32, global_batch_size=8),
    )


def test_states_are_read_and_written_once_a_step() -> None:
    """Drives are slower than the host here: 12 bytes at 5 GB/s, and 12 at 2.5."""
    found = predicted((Offload.OPTIMIZER,))
    seconds = PARAMETERS / 8 * (STATES / READ + STATES / WRITE)
    assert found.breakdown_seconds.offload_exposed == pytest.approx(seconds)


def test_parameters_on_drives_are_written_too() -> None:
    """2 bytes each, as DeepSpeed stores them, once a step."""
    (without,) = predicted((Offload.OPTIMIZER,)).stages
    (with_parameters,) = predicted((Offload.OPTIMIZER, Offload.PARAMETERS)).stages
    more = with_parameters.step_end_seconds - without.step_end_seconds
    assert more == pytest.approx(PARAMETERS / 8 * 2 / WRITE)


def test_drives_faster_than_the_host_cost_nothing_more() -> None:
    both = (Offload.OPTIMIZER, Offload.PARAMETERS)
    fast = {"read_bytes_per_second": 1e15, "write_bytes_per_second": 1e15}
    on_drives, on_host = predicted(both, **fast), predicted(both, store="host")
    assert on_drives.step_seconds.p50 == pytest.approx(on_host.step_seconds.p50, rel=1e-4)


def test_states_take_room_on_the_drives_of_their_node() -> None:
    (stage,) = predicted((Offload.OPTIMIZER,)).stages
    assert stage.host_memory_bytes == pytest.approx(PARAMETERS / 8 * STATES)
    assert stage.host_capacity_bytes == pytest.approx(1e12)


def test_what_host_memory_cannot_hold_is_planned_on_drives() -> None:
    """96 GB of states beside one device, with 16 GiB of host memory."""
    model = resolved_model("llama-3-8b")
    cluster = resolved_cluster(a_cluster(device_count=1, host_gib=16.0))
    fields = {"global_batch_size": 8, "sequence_length": 2048, "stack": "deepspeed"}
    found = plan(model, cluster, Job(**fields, offload_to="nvme"))
    assert isinstance(found, Plan)
    verify(found)
    assert isinstance(plan(model, cluster, Job(**fields)), Infeasible)


@pytest.mark.parametrize(
    ("job", "cluster", "field"),
    [
        ({"stack": "torch"}, a_cluster(), "job.offload_to"),
        ({"stack": "deepspeed"}, "8xh100-sxm5-80gb", r"cluster.node_groups.0.nvme"),
    ],
)
def test_what_cannot_offload_to_nvme_is_refused(
    job: dict[str, str], cluster: Any, field: str
) -> None:
    with pytest.raises(InputError, match=field):
        plan(resolved_model("llama-3-8b"), resolved_cluster(cluster), Job(**job, offload_to="nvme"))


def test_activations_are_not_offloaded_to_nvme() -> None:
    strategy = Strategy(data_parallel_shard_degree=8, offload=(Offload.ACTIVATIONS,))
    job = Job(global_batch_size=8, sequence_length=2048, stack="deepspeed", offload_to="nvme")
    with pytest.raises(InputError, match="activations are not offloaded to NVMe"):
        estimate(resolved_model("llama-3-8b"), resolved_cluster(a_cluster()), job, strategy)


def test_states_are_offloaded_to_nvme_where_they_are_sharded_whole() -> None:
    """Optimizer states under stage 1 go to the host, and under stage 3 to either."""
    job = Job(global_batch_size=8, sequence_length=2048, stack="deepspeed", offload_to="nvme")
    model, cluster = resolved_model("llama-3-8b"), resolved_cluster(a_cluster())
    fields = {"data_parallel_shard_degree": 8, "offload": (Offload.OPTIMIZER,)}
    with pytest.raises(InputError, match=r"sharded whole, and zero_stage is 1.*use zero_stage 3"):
        estimate(model, cluster, job, Strategy(**fields, zero_stage=1))
    assert estimate(model, cluster, job, Strategy(**fields, zero_stage=3)).prediction


def test_a_plan_with_states_on_nvme_shards_them_whole() -> None:
    model = resolved_model("llama-3-8b")
    cluster = resolved_cluster(a_cluster(device_count=1, host_gib=16.0))
    fields = {"global_batch_size": 8, "sequence_length": 2048, "stack": "deepspeed"}
    found = plan(model, cluster, Job(**fields, offload_to="nvme"))
    assert isinstance(found, Plan)
    assert found.strategy.stages is not None
    groups = [group for stage in found.strategy.stages for group in stage.layers]
    assert any(group.offload for group in groups)
    assert all(group.zero_stage == 3 for group in groups if group.offload)
