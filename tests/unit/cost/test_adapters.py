"""What low-rank adapters change of a layer's time and memory, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from planner.cost.adapters import needed_flop_per_token
from planner.cost.compute import compute_seconds
from planner.cost.configuration import Choice, Choices, Configuration, Configurations
from planner.cost.layer_costs import LayerBytes
from planner.cost.layers import layer_bytes, layer_seconds, local_states, no_extras
from planner.cost.setting import Setting, setting
from planner.cost.states import LocalParameters, sharded_bytes, state_memory, sync_seconds
from planner.hardware import cluster_hardware
from planner.importers.clusters import cluster_from_short_form
from planner.importers.models import read_model
from planner.schema.job import Adapters, AdapterTargets, BaseFormat, Stack, Unpacking
from planner.schema.strategy import Offload
from planner.workload.layer import LayerWorkload
from planner.workload.model import model_workload
from tests.builders import a_job

LLAMA = model_workload(read_model("llama-3-8b")[1])
BLOCK: LayerWorkload = LLAMA.runs[0][0]
PARAMETERS = 218_112_000  # of a block
# r (K + N) of 4096 x 4096 twice, 4096 x 1024 twice, 4096 x 14336 three times
ADAPTED = 16 * (2 * 8192 + 2 * 5120 + 3 * 18432)
OF_ATTENTION = 16 * (2 * 8192 + 2 * 5120)
NESTED_BYTES = (4 + 1 / 8 + 1 / 512) / 8  # 8 bits for 64 weights, 32 for 16,384
ALL = Adapters(rank=16)
ATTENTION = Adapters(rank=16, targets=AdapterTargets.ATTENTION)


def a_setting(length: int = 65536, tensor: int = 1, **job: Any) -> Setting:
    """One sequence on each of eight H100."""
    (kind,) = cluster_hardware(cluster_from_short_form("1x8xh100-sxm5-80gb")).kinds
    row = Configuration(tensor_parallel_degree=tensor, data_parallel_shard_degree=8 // tensor)
    return setting(a_job(sequence_length=length, **job), kind, Configurations.of([row]))


def held(zero_stage: int = 0, layer: LayerWorkload = BLOCK, **job: Any) -> LayerBytes:
    here = a_setting(stack=Stack.DEEPSPEED, **job)
    choices = Choices.of([Choice(zero_stage=zero_stage)])
    return layer_bytes(layer, choices=choices, setting=here, extras=no_extras(here))


@pytest.mark.parametrize(("adapters", "trained"), [(ALL, ADAPTED), (ATTENTION, OF_ATTENTION)])
def test_adapters_alone_have_optimizer_states(adapters: Adapters, trained: int) -> None:
    """Two moments and a master copy, 12 bytes a parameter; what is frozen has 2 bytes alone."""
    found = held(adapters=adapters)
    assert found.optimizer.item() == pytest.approx(12 * trained)
    assert found.parameters.item() == pytest.approx(2 * (PARAMETERS + trained))


def test_zero_3_shards_what_is_frozen_as_well() -> None:
    found = held(zero_stage=3, adapters=ALL)
    assert found.parameters.item() == pytest.approx(2 * (PARAMETERS + ADAPTED) / 8)
    assert held(zero_stage=2, adapters=ALL).parameters.item() == pytest.approx(
        2 * (PARAMETERS + ADAPTED)
    )


@pytest.mark.parametrize(
    ("base_format", "bits"),
    [
        ("bnb_nested", 4.126953125),  # 8 for 64, 32 for 64 x 256
        ("bnb", 4.5),  # 32 for 64
        ("gptq", 4.15625),  # 16 and 4 for 128
        ("hqq", 4.5),  # twice 16 for 64
        ("mxfp4", 4.25),  # 8 for 32
        ("nvfp4", 4.5),  # 8 for 16
    ],
)
def test_four_bits_take_a_quarter_and_their_scales(base_format: BaseFormat, bits: float) -> None:
    found = held(adapters=Adapters(rank=16, base_bits=4, base_format=base_format))
    assert found.parameters.item() == pytest.approx(bits / 8 * PARAMETERS + 2 * ADAPTED)


def test_formats_of_four_bits_are_of_no_others() -> None:
    with pytest.raises(ValueError, match=r"base_format hqq is of weights in 4 bits.*base_bits 4"):
        Adapters(rank=16, base_bits=8, base_format=BaseFormat.HQQ)


# Of 4.126953125, 4.5 and 4.15625 bits those that every rank holds whole: scales in 8 and 32 bits,
# scales and zeros of HQQ, and all that GPTQ has
@pytest.mark.parametrize(
    ("base_format", "whole_scales", "divided_bits", "whole_bits"),
    [
        ("bnb_nested", True, 4.0, 0.126953125),
        ("bnb_nested", False, 4.126953125, 0.0),
        ("bnb", True, 4.0, 0.5),
        ("hqq", True, 4.0, 0.5),
        ("gptq", False, 0.0, 4.15625),
        ("gptq", True, 0.0, 4.15625),
    ],
)
def test_what_is_no_parameter_is_not_sharded(
    base_format: BaseFormat, whole_scales: bool, divided_bits: float, whole_bits: float
) -> None:
    base = Adapters(rank=16, base_bits=4, base_format=base_format, whole_scales=whole_scales)
    of_adapters = 2 * ADAPTED
    divided, whole = divided_bits / 8 * PARAMETERS, whole_bits / 8 * PARAMETERS
    sharded = held(zero_stage=3, adapters=base)
    assert sharded.parameters.item() == pytest.approx((divided + of_adapters) / 8 + whole)
    replicated = held(zero_stage=2, adapters=base)
    assert replicated.parameters.item() == pytest.approx(divided + of_adapters + whole)


def test_what_is_no_parameter_is_neither_gathered_nor_offloaded() -> None:
    """Of nested blocks 4 bits are, and 0.127 stay on the device; an eighth of what is sharded."""
    here = a_setting(
        stack=Stack.DEEPSPEED, adapters=Adapters(rank=16, base_bits=4, whole_scales=True)
    )
    local = local_states(BLOCK, here, no_extras(here))
    moved = 0.5 * PARAMETERS + 2 * ADAPTED
    gather = here.groups.shard.all_gather(local.dense * 0.0 + moved)
    assert sync_seconds(local, here).gather.item() == pytest.approx(gather.item())
    assert sharded_bytes(local, here).item() == pytest.approx(moved / 8)
    choices = Choices.of([Choice(zero_stage=3, offload=(Offload.PARAMETERS,))])
    states = state_memory(local, choices, here)
    assert states.gathered.item() == pytest.approx(moved)
    assert states.parameters.item() == pytest.approx(0.126953125 / 8 * PARAMETERS)
    assert states.host.item() == pytest.approx(moved / 8)


def test_whole_scales_are_of_four_bits_alone() -> None:
    with pytest.raises(ValueError, match=r"whole_scales is of weights in 4 bits.*base_bits 4"):
        Adapters(rank=16, base_bits=8, whole_scales=True)


@pytest.mark.parametrize(
    ("framework", "whole"), [("axolotl", True), ("accelerate", True), ("torchtitan", False)]
)
def test_programs_of_bitsandbytes_hold_scales_whole(framework: str, whole: bool) -> None:
    base = {"rank": 16, "base_bits": 4}
    for adapters in (base, Adapters(**base)):
        found = a_job(framework=framework, adapters=adapters).adapters
        assert found is not None
        assert found.whole_scales is whole
    stated = a_job(framework=framework, adapters={**base, "whole_scales": False}).adapters
    assert stated is not None
    assert not stated.whole_scales


def test_ends_are_frozen_unless_they_are_trained() -> None:
    """A table of 128,256 x 4,096, of which a copy is trained."""
    table = 128_256 * 4096
    frozen = held(layer=LLAMA.embedding, adapters=ALL)
    trained = held(layer=LLAMA.embedding, adapters=Adapters(rank=16, trains_ends=True))
    assert frozen.optimizer.item() == 0.0
    assert frozen.parameters.item() == pytest.approx(2 * table)
    assert trained.optimizer.item() == pytest.approx(12 * table)
    assert trained.parameters.item() == pytest.approx(4 * table)


def test_ends_are_not_stored_in_four_bits() -> None:
    packed = held(layer=LLAMA.embedding, adapters=Adapters(rank=16, base_bits=4))
    assert packed.parameters.item() == pytest.approx(2 * 128_256 * 4096)


def test_frozen_products_have_no_weights_gradient() -> None:
    """A third of the products' time is spared; adapters of rank 1 hardly take any."""
    whole = compute_seconds(BLOCK, a_setting())
    adapted = compute_seconds(BLOCK, a_setting(adapters=Adapters(rank=1)))
    assert adapted.weight_gradient.item() < 0.1 * whole.weight_gradient.item()
    spared = (whole.backward - adapted.backward).item()
    assert 0.6 * whole.weight_gradient.item() < spared < whole.weight_gradient.item()
    assert adapted.forward.item() > whole.forward.item()


def test_weights_in_four_bits_are_unpacked_for_every_reading() -> None:
    """4.127 bits read and 2 bytes written for each, forward and for the inputs' gradient."""
    plain = compute_seconds(BLOCK, a_setting(adapters=ALL))
    packed = compute_seconds(BLOCK, a_setting(adapters=Adapters(rank=16, base_bits=4)))
    products = PARAMETERS - 2 * 4096  # all but the norms
    once = products * (NESTED_BYTES + 2) / a_setting().hardware.memory_bytes_per_second
    assert (packed.forward - plain.forward).item() == pytest.approx(once)
    assert (packed.backward - plain.backward).item() == pytest.approx(once)


@pytest.mark.parametrize(
    ("unpacking", "moved_bytes", "readings"),
    [(Unpacking.AUTO_GPTQ, 22.5, 1), (Unpacking.TORCHAO, 33.0, 2)],
)
def test_libraries_unpack_by_steps(unpacking: Unpacking, moved_bytes: float, readings: int) -> None:
    """Of auto_gptq backward finds what forward unpacked; torchao unpacks anew."""
    plain = compute_seconds(BLOCK, a_setting(adapters=ALL))
    by_steps = Adapters(rank=16, base_bits=4, unpacking=unpacking)
    packed = compute_seconds(BLOCK, a_setting(adapters=by_steps))
    products = PARAMETERS - 2 * 4096
    once = products * moved_bytes / a_setting().hardware.memory_bytes_per_second
    assert (packed.forward - plain.forward).item() == pytest.approx(once)
    backward = (packed.backward - plain.backward).item()
    assert backward == pytest.approx((readings - 1) * once, abs=1e-12)


def test_weights_in_16_bits_need_no_unpacking() -> None:
    whole = compute_seconds(BLOCK, a_setting(adapters=ALL))
    named = Adapters(rank=16, unpacking=Unpacking.TORCHAO)
    assert compute_seconds(BLOCK, a_setting(adapters=named)).forward == whole.forward


def test_what_is_frozen_is_gathered_as_it_is_stored() -> None:
    """4.127 bits of what is frozen, 16 of adapters, for forward and for backward."""
    here = a_setting(adapters=Adapters(rank=16, base_bits=4))
    local = local_states(BLOCK, here, no_extras(here))
    taken = here.groups.shard.all_gather(
        local.dense * 0.0 + NESTED_BYTES * PARAMETERS + 2 * ADAPTED
    )
    assert sync_seconds(local, here).gather.item() == pytest.approx(taken.item())


def test_what_is_fetched_from_the_host_is_as_it_is_stored() -> None:
    """Under DeepSpeed adapters have 16 bits as well; an eighth of each."""
    here = a_setting(stack=Stack.DEEPSPEED, adapters=Adapters(rank=16, base_bits=4))
    local = local_states(BLOCK, here, no_extras(here))
    stored = (NESTED_BYTES * PARAMETERS + 2 * ADAPTED) / 8
    assert sharded_bytes(local, here).item() == pytest.approx(stored)


def test_one_product_s_weights_are_there_in_16_bits_at_a_time() -> None:
    """The largest has 4,096 x 14,336; where backward reads what forward left, all are kept."""
    plain = held(adapters=ALL).transient.item()
    packed = held(adapters=Adapters(rank=16, base_bits=4))
    assert packed.transient.item() - plain == pytest.approx(2 * 4096 * 14336)
    left = held(adapters=Adapters(rank=16, base_bits=4, unpacking=Unpacking.AUTO_GPTQ))
    kept = left.activations.item() - packed.activations.item()
    assert kept == pytest.approx(2 * (PARAMETERS - 2 * 4096))


def test_small_layers_share_the_latency_of_a_bucket() -> None:
    """Adapters of a block are 1.34 M of a bucket of 40 M under Megatron, and take their share."""
    here = a_setting(stack=Stack.MEGATRON, adapters=ALL)
    stage = LocalParameters(dense=np.array([[80e6]]), expert=np.zeros((1, 1)))
    found = sync_seconds(local_states(BLOCK, here, no_extras(here)), here, stage=stage)
    whole = here.groups.shard.reduce_scatter(np.array([[40e6 * 4.0]])).item()
    assert found.reduce_scatter.item() == pytest.approx(whole * ADAPTED / 40e6)


def test_only_adapters_are_reduced_and_updated() -> None:
    """Of 218 million parameters 1.3 are: less than a fiftieth of the time, latency included."""
    choices = Choices.of([Choice(zero_stage=0)])

    def ends(**job: Any) -> tuple[float, float]:
        here = a_setting(stack=Stack.DEEPSPEED, **job)
        found = layer_seconds(
            BLOCK, "block", choices=choices, setting=here, extras=no_extras(here)
        ).step_end_seconds
        return found.data_parallel_exposed.item(), found.optimizer.item()

    whole, adapted = ends(), ends(adapters=ALL)
    assert adapted[0] < whole[0] / 20
    assert adapted[1] == pytest.approx(whole[1] * ADAPTED / PARAMETERS)


def test_a_feed_forward_without_adapters_keeps_no_rows_for_its_weights() -> None:
    """The row of 4,096 that gate and up read, and that of 14,336 that down reads; 2 bytes each."""
    less = held(adapters=ATTENTION).activations.item()
    more = held(adapters=ALL).activations.item()
    ranks = 16 * 3  # of the feed-forward's adapters
    assert more - less == pytest.approx(65536 * 2 * (4096 + 14336 + ranks))


def test_each_adapter_keeps_what_dropout_leaves_of_its_row_and_a_mask() -> None:
    """Three bytes an element of five rows of 4,096, and of those that `output` and `down` read.

    Rows that products share, two of 4,096, and that of 14,336 that `down` reads have two bytes.
    """
    less = held(adapters=ALL).activations.item()
    more = held(adapters=Adapters(rank=16, dropout=True)).activations.item()
    rows = 3 * (5 * 4096 + 4096 + 14336) - 2 * (2 * 4096 + 14336)
    assert more - less == pytest.approx(65536 * rows)


def test_utilization_counts_no_gradients_of_frozen_weights() -> None:
    """6 FLOPs a parameter of a product become 4."""
    length = 4096
    products = 32 * (PARAMETERS - 2 * 4096) + 128_256 * 4096
    whole = needed_flop_per_token(LLAMA, a_job(sequence_length=length), length)
    adapted = needed_flop_per_token(LLAMA, a_job(sequence_length=length, adapters=ALL), length)
    assert whole - adapted == pytest.approx(2 * products)
