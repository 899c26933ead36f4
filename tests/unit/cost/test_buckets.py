"""Buckets: a layer's share of collectives that stacks launch by bucket; by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from planner.cost.configuration import Configuration, Configurations, Floats
from planner.cost.setting import Setting, setting
from planner.cost.states import Buckets, LocalParameters, SyncSeconds, sync_seconds
from planner.hardware import cluster_hardware, stack_profile
from planner.hardware_profiles import BucketProfile
from planner.importers.clusters import cluster_from_short_form
from planner.schema.job import Stack
from tests.builders import a_job

LATENCY, PER_BYTE = 1e-3, 1e-9


def a_setting(ranks: int = 8, **job: Any) -> Setting:
    """One data-parallel rank on each of so many H100."""
    (kind,) = cluster_hardware(cluster_from_short_form(f"{ranks}xh100-sxm5-80gb")).kinds
    return setting(
        a_job(**job), kind, Configurations.of([Configuration(data_parallel_shard_degree=ranks)])
    )


def collective(message_bytes: Floats) -> Floats:
    """One millisecond, and one for each million bytes."""
    return LATENCY + PER_BYTE * message_bytes


def seconds(parameters: float, stage: float, profile: BucketProfile | None) -> float:
    """What a layer's 4-byte gradients take in a stage of so many parameters."""
    here = a_setting()
    own = Buckets.of(
        np.full((1, 1), parameters),
        stage=np.full((1, 1), stage),
        profile=profile,
        setting=here,
    )
    return float(own.seconds(collective, 4.0).item())


def dense(count: float) -> LocalParameters:
    """Parameters that are no experts'."""
    return LocalParameters(dense=np.full((1, 1), count), expert=np.zeros((1, 1)))


def synced(stack: Stack, count: float, *, stage: float, ranks: int = 8, **job: Any) -> SyncSeconds:
    """What a layer's states take to sync."""
    here = a_setting(ranks, stack=stack, **job)
    return sync_seconds(dense(count), here, stage=dense(stage))


def test_latency_is_paid_once_a_bucket_whatever_layers_are_in_it() -> None:
    """Ten layers of 4 million parameters in buckets of 20: two, each of 80 MB."""
    bucket = BucketProfile(parameters=20e6)
    assert 10 * seconds(4e6, 40e6, bucket) == pytest.approx(2 * (1e-3 + 80e-3))


def test_a_layer_of_more_than_a_bucket_pays_once() -> None:
    assert seconds(80e6, 800e6, BucketProfile(parameters=20e6)) == pytest.approx(1e-3 + 320e-3)


def test_a_stage_that_fills_no_bucket_pays_once() -> None:
    """Adapters of 80 layers, half a million parameters each: one collective of 160 MB."""
    assert 80 * seconds(5e5, 40e6, BucketProfile(parameters=500e6)) == pytest.approx(1e-3 + 160e-3)


def test_without_buckets_every_layer_pays() -> None:
    assert 10 * seconds(4e6, 40e6, None) == pytest.approx(10 * (1e-3 + 16e-3))


def test_nothing_takes_no_time() -> None:
    assert seconds(0.0, 40e6, BucketProfile(parameters=20e6)) == 0.0
    assert seconds(0.0, 40e6, None) == 0.0


def test_megatrons_buckets_grow_with_the_ranks() -> None:
    """40 million parameters on 8 ranks and on 32, 64 million on 64."""
    profile = stack_profile(Stack.MEGATRON).sharded_buckets
    for ranks, size in ((8, 40e6), (32, 40e6), (64, 64e6)):
        own = Buckets.of(
            np.full((1, 1), 1e6),
            stage=np.full((1, 1), 1e9),
            profile=profile,
            setting=a_setting(ranks, stack=Stack.MEGATRON),
        )
        assert own.size.item() == size


def test_adapters_of_80_layers_wait_for_one_ring_over_512_devices() -> None:
    """Layer by layer each waits for 64 nodes' hops of 15 us; one bucket waits once."""
    alone = synced(Stack.MEGATRON, 5e5, stage=5e5, ranks=512).reduce_scatter.item()
    together = synced(Stack.MEGATRON, 5e5, stage=40e6, ranks=512).reduce_scatter.item()
    assert alone > 64 * 15e-6
    assert 80 * together < 8 * alone


def test_fully_shard_reduces_a_block_at_a_time_and_ddp_25_mebibytes() -> None:
    """Sharded gradients of a block are one collective, whatever else the stage has.

    Whole ones of 3.3 million parameters are half of a bucket of 6.6 million.
    """
    one, many = (synced(Stack.TORCH, 3276800, stage=stage) for stage in (3276800, 1e9))
    assert one.reduce_scatter.item() == many.reduce_scatter.item()
    full = synced(Stack.TORCH, 6553600, stage=1e9).all_reduce.item()
    assert many.all_reduce.item() == pytest.approx(full / 2)


def test_torch_reduces_in_16_bits_where_the_job_says_so() -> None:
    """Large messages take half as long; DeepSpeed's are of 16 bits as it is."""
    for stack, ratio in ((Stack.TORCH, 0.5), (Stack.DEEPSPEED, 1.0)):
        wide, narrow = (
            synced(stack, 1e9, stage=1e9, gradients_in_16_bits=flag) for flag in (False, True)
        )
        taken = narrow.reduce_scatter.item() / wide.reduce_scatter.item()
        assert taken == pytest.approx(ratio, rel=0.02)
