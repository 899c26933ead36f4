"""Gradients of a single micro-batch: a peak is no less than that at the loss, and that afterwards.

Both are summed here from prices of layers one by one, without anything spared.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from planner.cost.configuration import Choice, Choices, Configuration, Configurations, LayerChoices
from planner.cost.layer_costs import LayerBytes
from planner.cost.layers import Extras, layer_bytes, no_extras
from planner.cost.setting import Setting, setting
from planner.cost.table import bytes_table
from planner.hardware import cluster_hardware
from planner.importers.clusters import cluster_from_short_form
from planner.importers.models import read_model
from planner.schema.job import Stack
from planner.schema.strategy import ActivationCheckpointing, Offload
from planner.workload.layer import LayerWorkload
from planner.workload.model import model_workload
from tests.builders import a_job

MODEL = model_workload(read_model("llama-3-8b")[1])
BLOCK = MODEL.runs[0][0]
BLOCKS = 32
(KIND,) = cluster_hardware(cluster_from_short_form("1x8xh100-sxm5-80gb")).kinds
EDGES = Choices.of([Choice(zero_stage=zero) for zero in (0, 1, 2, 3)])
CHOICES = Choices.of(
    [
        Choice(zero_stage=zero, activation_checkpointing=kept, offload=offload)
        for zero in (0, 1, 2, 3)
        for kept in ActivationCheckpointing
        for offload in ((), (Offload.ACTIVATIONS,))
    ]
)


def a_setting(length: int, count: int = 1, stack: Stack = Stack.TORCH) -> Setting:
    job = a_job(sequence_length=length, global_batch_size=8 * count, stack=stack)
    shape = Configuration(data_parallel_shard_degree=8, micro_batch_count=count)
    return setting(job, KIND, Configurations.of([shape]))


def peak(layers: Sequence[tuple[LayerBytes, int, int]]) -> float:
    """Return what one rank is predicted to need; each layer is (bytes, choice, how many)."""
    held = sum(n * (b.static() + b.activations)[0, c] for b, c, n in layers)
    return float(held + max(b.transient[0, c] for b, c, _ in layers))


def priced(
    here: Setting, length: int, mix: Sequence[tuple[int, int]], edges: tuple[int, int]
) -> float:
    """Return the peak of a rank with (choice, blocks) and the edges' choices, as tables have it."""
    table = bytes_table(
        MODEL,
        KIND,
        here.job,
        configurations=Configurations.of([Configuration(data_parallel_shard_degree=8)]),
        choices=LayerChoices(blocks=CHOICES, embedding=EDGES, head=EDGES),
    )
    assert here.sequence_length == length
    blocks = [(table.blocks[0], choice, count) for choice, count in mix]
    return peak([(table.embedding, edges[0], 1), *blocks, (table.head, edges[1], 1)])


def both_peaks(
    here: Setting, mix: Sequence[tuple[int, int]], edges: tuple[int, int]
) -> tuple[float, float]:
    """Return what is needed at the loss, and what afterwards, without the loss's buffers."""
    buffers = here.tokens * MODEL.head.vocabulary_size * here.logits_bytes
    plain, end = no_extras(here), no_extras(here, is_end=True)

    def held(layer: LayerWorkload, choices: Choices, extras: Extras) -> LayerBytes:
        return layer_bytes(layer, choices=choices, setting=here, extras=extras)

    first, last = held(MODEL.embedding, EDGES, end), held(MODEL.head.layer, EDGES, end)
    block = held(BLOCK, CHOICES, plain)
    layers = [(first, edges[0], 1), *((block, c, n) for c, n in mix), (last, edges[1], 1)]
    early = sum(n * (b.static() - b.gradients + b.activations)[0, c] for b, c, n in layers)
    gathered = 2.0 * 128256 * 4096 if edges[1] == 3 else 0.0
    return float(early + buffers.item() + gathered), peak(layers)


@pytest.mark.parametrize("length", [512, 2048, 4096, 8192, 32768])
@pytest.mark.parametrize("seed", range(8))
def test_a_peak_is_no_less_than_both_whatever_is_chosen(length: int, seed: int) -> None:
    random, here = Random(seed), a_setting(length)  # noqa: S311
    some = random.randrange(1, BLOCKS)
    chosen = random.sample(range(len(CHOICES)), 2)
    mix = [(chosen[0], some), (chosen[1], BLOCKS - some)]
    edges = (random.randrange(4), random.randrange(4))
    assert priced(here, length, mix, edges) >= max(both_peaks(here, mix, edges)) * (1.0 - 1e-12)


def test_a_block_that_needs_more_than_others_is_not_spared() -> None:
    """One block offloads all that it keeps, and has it twice while it runs."""
    whole = CHOICES.rows.index(Choice(activation_checkpointing=ActivationCheckpointing.FULL))
    offloading = CHOICES.rows.index(Choice(zero_stage=3, offload=(Offload.ACTIVATIONS,)))
    here, mix = a_setting(8192), [(whole, BLOCKS - 1), (offloading, 1)]
    assert priced(here, 8192, mix, (0, 0)) >= max(both_peaks(here, mix, (0, 0))) * (1.0 - 1e-12)


@pytest.mark.parametrize("kept", list(ActivationCheckpointing))
@pytest.mark.parametrize("length", [4096, 8192, 32768])
def test_a_peak_is_the_larger_of_both_where_blocks_choose_alike(
    length: int, kept: ActivationCheckpointing
) -> None:
    here = a_setting(length)
    choice = CHOICES.rows.index(Choice(zero_stage=3, activation_checkpointing=kept))
    found = priced(here, length, [(choice, BLOCKS)], (3, 3))
    assert found == pytest.approx(max(both_peaks(here, [(choice, BLOCKS)], (3, 3))), rel=0.005)


def test_gradients_of_several_micro_batches_are_there_at_the_loss() -> None:
    """One shard in 32 bits of each of 218 million parameters."""
    here = a_setting(8192, count=2)
    table = bytes_table(
        MODEL,
        KIND,
        here.job,
        configurations=Configurations.of(
            [Configuration(data_parallel_shard_degree=8, micro_batch_count=2)]
        ),
        choices=LayerChoices(blocks=CHOICES, embedding=EDGES, head=EDGES),
    )
    choice = CHOICES.rows.index(Choice(zero_stage=3))
    assert table.blocks[0].gradients[0, choice] == pytest.approx(4 * 218_112_000 / 8)
