"""The reference decoder has the planned shape, looks back only, and declares what it has."""

from __future__ import annotations

import pytest
import torch

from executor.apply.materialise import materialise
from executor.errors import ModelMismatchError, UnsupportedPlanError
from executor.losses import next_token_loss
from executor.models.declared import declared
from executor.models.decoder import Decoder, initial_value, rotary_angles, rotate
from executor.models.first_values import DrawnValues
from planner.schema.model import (
    Block,
    BlockRun,
    GroupedQueryAttention,
    MixtureFeedForward,
    NormPlacement,
    RunPart,
)
from tests.builders import a_model

CPU = torch.device("cpu")


def a_decoder(**changes: object) -> Decoder:
    """The tiny model with its initial values."""
    model = Decoder(a_model(**changes))
    values = DrawnValues(initial_value, seed=0)
    materialise(model, declaration=model.declaration(), device=CPU, values=values)
    return model


def test_parameters_are_as_many_as_the_shapes_say() -> None:
    """2 x 256 x 64 + 64, and four times 2 x 64 + 2 x 64 x 64 + 2 x 32 x 64 + 3 x 128 x 64."""
    model = Decoder(a_model())
    assert sum(parameter.numel() for parameter in model.parameters()) == 180_800


def test_a_tied_head_is_the_embedding_after_materialising() -> None:
    model = a_decoder(tied_embeddings=True)
    assert model.head.weight is model.embedding.weight


def test_later_tokens_do_not_change_earlier_logits() -> None:
    model = a_decoder()
    tokens = torch.arange(8).unsqueeze(0)
    changed = tokens.clone()
    changed[0, 5:] = 77
    before, after = model(tokens), model(changed)
    torch.testing.assert_close(before[:, :5], after[:, :5])
    assert not torch.allclose(before[:, 5:], after[:, 5:])


def test_initial_weights_give_the_loss_of_a_uniform_guess() -> None:
    """Ln 256 = 5.545."""
    tokens = torch.arange(16).unsqueeze(0)
    loss = next_token_loss(a_decoder()(tokens), tokens)
    assert loss.item() == pytest.approx(5.545, abs=0.1)


def test_rotation_makes_attention_depend_on_distance_alone() -> None:
    """The product of a query at 5 and a key at 3 equals that at 9 and 7.

    Angles are kept in fp32: those of 9 radians are off by 9 x 2^-24 at most, and four enter.
    """
    cosine, sine = rotary_angles(16, 8, CPU)
    generator = torch.Generator().manual_seed(0)
    query, key = (
        torch.randn(8, generator=generator, dtype=torch.float64).expand(1, 1, 16, 8)
        for _ in range(2)
    )
    queries, keys = rotate(query, cosine, sine)[0, 0], rotate(key, cosine, sine)[0, 0]
    near, far = queries[5] @ keys[3], queries[9] @ keys[7]
    rounding = 4 * 9 * 2.0**-24 * float(query[0, 0, 0].norm() * key[0, 0, 0].norm())
    assert near.item() == pytest.approx(far.item(), abs=rounding)
    assert near.item() != pytest.approx((queries[5] @ keys[2]).item(), abs=100 * rounding)


def test_equal_seeds_give_equal_weights_and_others_do_not() -> None:
    first, again = a_decoder(), a_decoder()
    other = Decoder(a_model())
    values = DrawnValues(initial_value, seed=1)
    materialise(other, declaration=other.declaration(), device=CPU, values=values)
    assert torch.equal(first.head.weight, again.head.weight)
    assert not torch.equal(first.head.weight, other.head.weight)
    assert not torch.equal(first.head.weight, first.embedding.weight)


def test_experts_with_biases_are_refused_by_the_reference_decoder() -> None:
    block = Block(
        attention=GroupedQueryAttention(head_count=4, key_value_head_count=2, head_size=16),
        feed_forward=MixtureFeedForward(
            expert_count=4, experts_per_token=2, expert_ffn_size=32, expert_bias=True
        ),
    )
    graph = a_model(runs=(BlockRun(block=block, block_count=4),))
    with pytest.raises(UnsupportedPlanError, match=r"model\.feed_forward\.expert_bias"):
        Decoder(graph)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"causal": False}, "attention.causal"),
        ({"chunk_tokens": 8}, "attention.chunk_tokens"),
        ({"sink": True}, "attention.sink"),
    ],
)
def test_attention_that_the_reference_decoder_lacks_is_refused_by_field(
    change: dict[str, object], field: str
) -> None:
    (run,) = a_model().runs
    attention = run.block.attention.model_copy(update=change)
    block = run.block.model_copy(update={"attention": attention})
    with pytest.raises(UnsupportedPlanError) as caught:
        Decoder(a_model(runs=(BlockRun(block=block, block_count=4),)))
    assert caught.value.field == f"model.{field}"


def test_norms_after_a_part_and_towers_are_refused_by_the_reference_decoder() -> None:
    (run,) = a_model().runs
    after = run.block.model_copy(update={"norm_placement": NormPlacement.AFTER})
    with pytest.raises(UnsupportedPlanError, match=r"model\.norm_placement.*after"):
        Decoder(a_model(runs=(BlockRun(block=after, block_count=4),)))
    tower = run.model_copy(update={"part": RunPart.ENCODER})
    with pytest.raises(UnsupportedPlanError, match=r"model\.runs\.0\.part.*encoder"):
        Decoder(a_model(runs=(tower, run)))


def test_a_model_that_declares_nothing_is_refused() -> None:
    with pytest.raises(ModelMismatchError, match=r"build_model.*Linear"):
        declared(torch.nn.Linear(2, 2))
