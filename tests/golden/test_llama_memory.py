"""Llama-3-8B keeps, per token and layer in bf16, the bytes measured on fake tensors.

Measured with torch 2.13 on fake tensors and a fake process group, which equal the live bytes of
real gloo ranks to three digits: after forward at 2,048, 4,096 and 8,192 tokens per sequence, the
slope over layers and tokens. The three bytes per configuration stand in the tests.
"""

from __future__ import annotations

import pytest

from planner.importers.models import read_model
from planner.workload.layer import ActivationElements, LayerActivations
from planner.workload.model import model_workload

GIB = 2**30
LAYERS, TOKENS = 32, 8192


@pytest.fixture(scope="module")
def kept() -> LayerActivations:
    """What one of the 32 equal blocks keeps."""
    ((layer, count),) = model_workload(read_model("llama-3-8b")[1]).runs
    assert count == LAYERS
    return layer.activations


def rank_bytes(
    elements: ActivationElements, *, tensor_parallel: int = 1, sequence_parallel: bool = False
) -> float:
    """Return bytes per token on one tensor-parallel rank, as the document of elements says."""
    spread = tensor_parallel if sequence_parallel else 1
    reduced = elements.reduced / spread if tensor_parallel > 1 else 0.0
    narrow = elements.gathered + (elements.replicated + elements.norm_copies) / spread + reduced
    narrow += (elements.sharded + elements.products + elements.row_copies) / tensor_parallel
    return 2.0 * narrow + 4.0 * elements.float32 / tensor_parallel


def test_without_checkpointing_a_layer_keeps_201_097_bytes(kept):
    assert rank_bytes(kept.none) == pytest.approx(201_097, rel=0.01)


def test_with_selective_checkpointing_a_layer_keeps_63_865_bytes(kept):
    assert rank_bytes(kept.selective) == pytest.approx(63_865, rel=0.01)


def test_with_full_checkpointing_a_layer_keeps_8_421_bytes(kept):
    assert rank_bytes(kept.full) == pytest.approx(8_421, rel=0.03)


def test_eight_tensor_parallel_ranks_keep_39_715_bytes_with_sequence_parallel(kept):
    counted = rank_bytes(kept.none, tensor_parallel=8, sequence_parallel=True)
    assert counted == pytest.approx(39_715, rel=0.01)


def test_eight_tensor_parallel_ranks_keep_82_706_bytes_without_sequence_parallel(kept):
    """Far from an eighth: what norms keep is whole on every rank."""
    assert rank_bytes(kept.none, tensor_parallel=8) == pytest.approx(82_706, rel=0.01)


@pytest.mark.parametrize(("tensor_parallel", "after_forward_gib"), [(2, 29.182), (4, 17.632)])
def test_fewer_tensor_parallel_ranks_keep_as_much_more_as_measured(
    kept, tensor_parallel, after_forward_gib
):
    """Measured after forward at 8,192 tokens: 11.857 GiB on eight ranks; the head is the same."""
    counted = rank_bytes(kept.none, tensor_parallel=tensor_parallel, sequence_parallel=True)
    eight = rank_bytes(kept.none, tensor_parallel=8, sequence_parallel=True)
    measured = (after_forward_gib - 11.857) * GIB / (LAYERS * TOKENS)
    assert counted - eight == pytest.approx(measured, rel=0.05)


def test_selective_checkpointing_saves_what_was_measured_on_four_tensor_parallel_ranks(kept):
    """After forward: 17.632 GiB without, 8.756 with; the outputs of reductions are kept too."""
    none = rank_bytes(kept.none, tensor_parallel=4, sequence_parallel=True)
    selective = rank_bytes(kept.selective, tensor_parallel=4, sequence_parallel=True)
    measured = (17.632 - 8.756) * GIB / (LAYERS * TOKENS)
    assert none - selective == pytest.approx(measured, rel=0.02)
