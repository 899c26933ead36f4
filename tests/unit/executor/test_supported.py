"""What the executor cannot apply is refused before ranks start, with a remedy."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from executor.apply.schedule import Sequential
from executor.apply.supported import check_shapes, check_strategy
from executor.apply.zero import GradientSync
from executor.batch import Batch
from executor.errors import UnsupportedPlanError
from executor.masking import MicroBatch
from executor.models.declaration import Shapes
from planner.errors import MissingExtraError
from planner.schema.strategy import Strategy
from tests.builders import a_job


def resolved(**fields: Any) -> Strategy:
    """A strategy for four blocks and sixteen sequences."""
    return Strategy(**fields).resolved(block_count=4, global_batch_size=16)


def shapes(**changes: int) -> Shapes:
    """Sizes that two tensor-parallel ranks divide."""
    sizes = {
        "hidden_size": 64,
        "vocabulary_size": 256,
        "head_count": 4,
        "key_value_head_count": 2,
        "ffn_size": 128,
    }
    return Shapes(**{**sizes, **changes})


def test_experts_over_ranks_of_a_model_without_experts_are_refused() -> None:
    strategy = resolved(expert_parallel_degree=2, data_parallel_degree=2)
    check_strategy(strategy, a_job())
    with pytest.raises(UnsupportedPlanError) as caught:
        check_shapes(shapes(), strategy)
    assert caught.value.field == "strategy.expert_parallel_degree"
    assert caught.value.remedy


def test_ranks_beyond_key_value_heads_are_refused() -> None:
    """As a plan for Megatron-LM may have them, with sequences shared by exchanging heads."""
    strategy = resolved(
        tensor_parallel_degree=4, context_parallel_degree=2, context_parallel_kind="all_to_all"
    )
    with pytest.raises(UnsupportedPlanError, match="key_value_head_count 2") as caught:
        check_shapes(shapes(), strategy)
    assert caught.value.field == "strategy.tensor_parallel_degree"


def test_offloaded_parameters_of_a_group_that_is_not_sharded_are_named_by_their_place() -> None:
    groups = [
        {"first_block": 0, "block_count": 2, "offload": ["activations", "optimizer"]},
        {"first_block": 2, "block_count": 2, "zero_stage": 2, "offload": ["parameters"]},
    ]
    strategy = resolved(
        stages=[{"stage": 0, "layers": groups}], embedding={"zero_stage": 0}, head={"zero_stage": 0}
    )
    with pytest.raises(UnsupportedPlanError, match=r"strategy\.stages\.0\.layers\.1\.offload"):
        check_strategy(strategy, a_job())


def test_offload_to_drives_is_refused() -> None:
    strategy = resolved(offload=["optimizer"])
    with pytest.raises(UnsupportedPlanError, match=r"job\.offload_to.*nvme.*host"):
        check_strategy(strategy, a_job(offload_to="nvme"))


def test_fp8_needs_torchao(monkeypatch: pytest.MonkeyPatch) -> None:
    check_strategy(resolved(), a_job(precision="fp8"))
    monkeypatch.setitem(sys.modules, "torchao", None)
    with pytest.raises(MissingExtraError, match=r"job\.precision fp8.*meshwright\[fp8\]"):
        check_strategy(resolved(), a_job(precision="fp8"))


@pytest.mark.parametrize("field", ["states_in_16_bits", "gradients_in_16_bits"])
def test_states_in_16_bits_are_refused(field: str) -> None:
    with pytest.raises(UnsupportedPlanError, match=rf"job\.{field}.*in 32 bits.*{field} false"):
        check_strategy(resolved(), a_job(**{field: True}))


@pytest.mark.parametrize("field", ["steps_in_backward", "paged_states", "offloaded_gradients"])
def test_other_updates_than_one_of_all_parameters_are_refused(field: str) -> None:
    with pytest.raises(UnsupportedPlanError, match=rf"job\.{field}.*one update.*{field} false"):
        check_strategy(resolved(), a_job(**{field: True}))


def test_a_loss_that_takes_the_heads_product_is_refused() -> None:
    with pytest.raises(UnsupportedPlanError, match=r"job\.fused_linear_loss.*whole logits"):
        check_strategy(resolved(), a_job(fused_linear_loss=True))


def test_weights_in_4_bits_need_bitsandbytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(MissingExtraError, match=r"adapters\.base_bits.*meshwright\[qlora\]"):
        check_strategy(resolved(), a_job(adapters={"rank": 8, "base_bits": 4}))


def test_other_stacks_of_weights_in_4_bits_and_trained_ends_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check_strategy(resolved(), a_job(adapters={"rank": 8}))
    found = ModuleType("bitsandbytes")
    found.__spec__ = ModuleSpec("bitsandbytes", None)
    monkeypatch.setitem(sys.modules, "bitsandbytes", found)
    check_strategy(resolved(), a_job(adapters={"rank": 8, "base_bits": 4}))
    for fields, named in (
        ({"base_bits": 4, "unpacking": "auto_gptq"}, "unpacking.*auto_gptq.*kernel"),
        ({"base_bits": 4, "base_format": "gptq"}, "base_format.*gptq.*bnb_nested or bnb"),
        ({"trains_ends": True}, "trains_ends.*head"),
    ):
        with pytest.raises(UnsupportedPlanError, match=rf"adapters\.{named}"):
            check_strategy(resolved(), a_job(adapters={"rank": 8, **fields}))


def test_sequence_parallel_refuses_a_sequence_that_tensor_ranks_do_not_divide() -> None:
    """Torch aborts the process in that case, without an error."""
    strategy = resolved(tensor_parallel_degree=4, sequence_parallel=True)
    with pytest.raises(UnsupportedPlanError, match="tensor_parallel_degree 4 does not divide"):
        check_strategy(strategy, a_job(sequence_length=30))


@pytest.mark.parametrize("size", ["head_count", "key_value_head_count", "ffn_size"])
def test_a_size_that_tensor_ranks_do_not_divide_is_named(size: str) -> None:
    with pytest.raises(UnsupportedPlanError, match=f"model's {size} 33"):
        check_shapes(shapes(**{size: 33}), resolved(tensor_parallel_degree=2))


def test_what_the_executor_has_passes() -> None:
    strategy = resolved(
        tensor_parallel_degree=2,
        sequence_parallel=True,
        pipeline_parallel_degree=2,
        data_parallel_degree=2,
        zero_stage=3,
        activation_checkpointing="selective",
    )
    check_strategy(strategy, a_job())
    check_shapes(shapes(), strategy)


class Growing(nn.Module):
    """A module that adds what it has of all tokens to what it has of its own."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return their sum."""
        return tokens + torch.cat([tokens, tokens], dim=1)


@pytest.mark.parametrize("splits_sequence", [True, False])
def test_sizes_that_differ_where_ranks_have_their_own_tokens_are_explained(
    splits_sequence: bool,
) -> None:
    schedule = Sequential(
        Growing(),
        loss_function=lambda outputs, _: outputs.mean(),
        gradient_sync=GradientSync(),
        splits_sequence=splits_sequence,
    )
    tokens = torch.ones(1, 4)
    batch = MicroBatch(batch=Batch(arguments=(tokens,), named={}, targets=tokens), row_count=1)
    kind = UnsupportedPlanError if splits_sequence else RuntimeError
    with pytest.raises(kind, match="must match the size"):
        schedule.run([batch])
