"""What launching, gathering and syncing cost by stack, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from planner.cost.compute import compute_seconds
from planner.cost.configuration import Choice, Choices, Configuration, Configurations
from planner.cost.layer_costs import LayerSeconds
from planner.cost.layers import layer_seconds, no_extras
from planner.cost.setting import Setting, setting
from planner.cost.states import local_parameters, sync_seconds
from planner.hardware import cluster_hardware, stack_profile
from planner.importers.clusters import cluster_from_short_form
from planner.importers.models import read_model
from planner.schema.job import Precision, Stack
from planner.schema.strategy import ActivationCheckpointing
from planner.workload.layer import LayerWorkload
from planner.workload.model import model_workload
from tests.builders import a_job

LLAMA: LayerWorkload = model_workload(read_model("llama-3-8b")[1]).runs[0][0]
GPT: LayerWorkload = model_workload(read_model("gpt2-xl")[1]).runs[0][0]
H100, A100 = "h100-sxm5-80gb", "a100-sxm4-80gb"
PARAMETERS = 218_112_000  # of a block of Llama-3-8B


def a_setting(device: str = H100, length: int = 16, **job: Any) -> Setting:
    """One sequence on each of eight devices that share the states."""
    (kind,) = cluster_hardware(cluster_from_short_form(f"1x8x{device}")).kinds
    rows = Configurations.of([Configuration(data_parallel_shard_degree=8)])
    return setting(a_job(sequence_length=length, **job), kind, rows)


def priced(here: Setting, zero_stage: int = 3, again: bool = False) -> LayerSeconds:
    """Return the seconds of a block of Llama under one choice."""
    kind = ActivationCheckpointing.FULL if again else ActivationCheckpointing.NONE
    choices = Choices.of([Choice(zero_stage=zero_stage, activation_checkpointing=kind)])
    return layer_seconds(LLAMA, "block", choices=choices, setting=here, extras=no_extras(here))


def waits(layer: LayerWorkload, here: Setting) -> float:
    """Return how long the host takes to launch the layer's forward, its kernels included."""
    seconds = compute_seconds(layer, here)
    return float((seconds.forward + seconds.forward_host).item())


def test_an_a100s_host_launches_at_two_thirds_of_an_h100s_pace() -> None:
    """32 kernels of 20 microseconds, as transformers' layers have them."""
    assert waits(LLAMA, a_setting(H100)) == pytest.approx(32 * 20e-6)
    assert waits(LLAMA, a_setting(A100)) == pytest.approx(32 * 30e-6)


def test_launches_that_wait_for_their_kernels_add_to_them() -> None:
    """3.4 times 32 kernels of 20 microseconds, however long the kernels take."""
    for length in (16, 65536):
        seconds = compute_seconds(LLAMA, a_setting(length=length, blocking_launches=True))
        assert seconds.forward_host.item() == pytest.approx(3.4 * 32 * 20e-6)


def test_compiled_norms_rotary_and_gates_spare_17_of_32_launches() -> None:
    assert waits(LLAMA, a_setting(fused_elementwise=True)) == pytest.approx(15 * 20e-6)
    same = waits(LLAMA, a_setting(stack=Stack.MEGATRON, fused_elementwise=True))
    assert same == pytest.approx(waits(LLAMA, a_setting(stack=Stack.MEGATRON)))


def test_fused_norms_spare_their_8_launches_and_what_compiling_spares_without_them_is_9() -> None:
    """Two norms of 5 kernels become 2; rotary's 10 and the gate's 2 become 3."""
    assert waits(LLAMA, a_setting(fused_norms=True)) == pytest.approx((32 - 8) * 20e-6)
    rest = a_setting(fused_elementwise=True, fused_norms=False)
    assert waits(LLAMA, rest) == pytest.approx((32 - 9) * 20e-6)


def test_autocast_casts_whole_weights_for_each_micro_batch_and_their_gradients_back() -> None:
    """6 bytes a parameter each way, and forward's again where it is run again; shards are cast."""
    here = a_setting(length=65536)
    once = 6 * PARAMETERS / here.hardware.memory_bytes_per_second
    whole, shards = (priced(here, stage).micro_batch_seconds for stage in (0, 1))
    assert (whole.compute - shards.compute).item() == pytest.approx(2 * once)
    again, without = (priced(here, stage, again=True).micro_batch_seconds for stage in (0, 1))
    assert (again.recompute - without.recompute).item() == pytest.approx(once)
    exact = a_setting(length=65536, precision=Precision.FP32)
    pair = [priced(exact, stage).micro_batch_seconds.compute.item() for stage in (0, 1)]
    assert pair[0] == pair[1]


def test_plain_torch_launches_nine_kernels_more_around_unfused_attention() -> None:
    """12 kernels in a block of GPT-3, 7 more for its GELU and 3 for dropout; compiled, each is one.

    What the softmax puts out in 32 bits is copied to 16.
    """
    unfused = {"fused_attention": False, "dropout": True}
    plain, compiled = (
        waits(GPT, a_setting(fused_elementwise=flag, **unfused)) for flag in (False, True)
    )
    assert plain == pytest.approx((12 + 9 + 7 + 3) * 20e-6)
    assert compiled == pytest.approx(12 * 20e-6)


def test_hooks_around_nine_modules_wait_where_parameters_are_gathered() -> None:
    """Seven products and two norms, 85 microseconds each, forward and back, and when run again."""
    here = a_setting(stack=Stack.DEEPSPEED)
    two, three = (priced(here, stage).micro_batch_seconds for stage in (2, 3))
    assert (three.host - two.host).item() == pytest.approx(2 * 9 * 85e-6)
    again = priced(here, 3, again=True).micro_batch_seconds.recompute
    without = priced(here, 2, again=True).micro_batch_seconds.recompute
    assert (again - without).item() == pytest.approx(9 * 85e-6)


def test_graphs_have_no_hooks() -> None:
    here = a_setting(stack=Stack.DEEPSPEED, cuda_graphs=True)
    assert priced(here, 3).micro_batch_seconds.host.item() == 0.0


def test_fully_shard_copies_what_it_gathers_and_reduces() -> None:
    """Twice 2 + 2 bytes a parameter to unpack, and 2 + 4 to pack its gradient."""
    here = a_setting(length=65536)
    copies = here.stack.model_copy(update={"copies_gathered": False})
    object.__setattr__(here, "stack", copies)
    without = priced(here).micro_batch_seconds.data_parallel_exposed.item()
    with_copies = priced(a_setting(length=65536)).micro_batch_seconds.data_parallel_exposed.item()
    moved = (2 * 4 + 6) * PARAMETERS / here.hardware.memory_bytes_per_second
    assert with_copies - without == pytest.approx(moved)


@pytest.mark.parametrize(
    ("zero_stage", "parts"), [(0, ("all_reduce",)), (1, ("reduce_scatter", "gather_trained"))]
)
def test_deepspeed_syncs_once_a_step_while_nothing_computes(
    zero_stage: int, parts: tuple[str, ...]
) -> None:
    here = a_setting(stack=Stack.DEEPSPEED, length=65536)
    sync = sync_seconds(local_parameters(LLAMA.parameters, here), here)
    found = priced(here, zero_stage).step_end_seconds.data_parallel_exposed.item()
    assert found == pytest.approx(sum(getattr(sync, part).item() for part in parts))


def test_deepspeed_hides_gradients_where_the_job_overlaps_them() -> None:
    """They slow the backward beside them by 8 %; parameters are still waited for."""
    here = a_setting(stack=Stack.DEEPSPEED, length=65536, overlapped_gradients=True)
    sync = sync_seconds(local_parameters(LLAMA.parameters, here), here)
    found = priced(here, 1).step_end_seconds.data_parallel_exposed.item()
    assert found == pytest.approx(0.08 * sync.reduce_scatter.item() + sync.gather_trained.item())


def test_megatron_waits_for_gradients_where_the_job_does_not_overlap_them() -> None:
    """Nor does it gather parameters under forward then: `--overlap-param-gather` is refused."""
    here = a_setting(stack=Stack.MEGATRON, length=65536, overlapped_gradients=False)
    sync = sync_seconds(local_parameters(LLAMA.parameters, here), here)
    found = priced(here, 1).step_end_seconds.data_parallel_exposed.item()
    assert found == pytest.approx(sync.reduce_scatter.item() + sync.gather_trained.item())


def test_megatron_hides_what_it_syncs_under_compute() -> None:
    here = a_setting(stack=Stack.MEGATRON, length=65536)
    sync = sync_seconds(local_parameters(LLAMA.parameters, here), here)
    found = priced(here, 1).step_end_seconds.data_parallel_exposed.item()
    contention = stack_profile(Stack.MEGATRON).overlap.contention_ratio
    assert found == pytest.approx(contention * (sync.reduce_scatter + sync.gather_trained).item())


def test_compiled_norms_and_rotary_spare_their_steps() -> None:
    """2 x 14 passes over 4,096 and 6 over 5,120, two bytes each, and twice as much backward.

    Keys and values of 8 heads are repeated for 32: 2 x 40 x 128.
    """
    plain, fused = (
        compute_seconds(LLAMA, a_setting(length=8192, fused_elementwise=flag))
        for flag in (False, True)
    )
    here = a_setting()
    once = 2 * 8192 * (28 * 4096 + 6 * 5120 + 10240) / here.hardware.memory_bytes_per_second
    assert (plain.forward - fused.forward).item() == pytest.approx(once)
    assert (plain.backward - fused.backward).item() == pytest.approx(2 * once)


def test_norms_are_as_the_stack_has_them_unless_the_job_says() -> None:
    """Steps of their own move more, under either stack as much more."""
    times = {
        (stack, flag): compute_seconds(LLAMA, a_setting(stack=stack, fused_elementwise=flag))
        for stack in (Stack.MEGATRON, Stack.TORCH)
        for flag in (None, True, False)
    }
    moved = {key: one.forward.item() for key, one in times.items()}
    assert moved[Stack.MEGATRON, None] == moved[Stack.MEGATRON, True]
    assert moved[Stack.TORCH, None] == moved[Stack.TORCH, False]
    megatron = moved[Stack.MEGATRON, False] - moved[Stack.MEGATRON, True]
    assert megatron == pytest.approx(moved[Stack.TORCH, False] - moved[Stack.TORCH, True])
    assert megatron > 0.0


def test_megatron_gathers_parameters_in_8_bits_under_fp8() -> None:
    """Of a large message the ring takes half as long, its hops aside; torch's stays as it is."""
    for stack, ratio in ((Stack.MEGATRON, 0.5), (Stack.TORCH, 1.0)):
        wide, narrow = (
            sync_seconds(local_parameters(LLAMA.parameters, here), here)
            for here in (
                a_setting(stack=stack, precision=precision)
                for precision in (Precision.BF16, Precision.FP8)
            )
        )
        assert narrow.gather.item() == wide.gather.item()
        taken = narrow.gather_trained.item() / wide.gather_trained.item()
        assert taken == pytest.approx(ratio, abs=0.1)
