"""The reference mixture of experts, against the sums that define it."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from executor.apply.materialise import materialise
from executor.models.decoder import Decoder, initial_value
from executor.models.first_values import DrawnValues
from executor.models.mixture import Mixture
from planner.schema.model import Block, BlockRun, GroupedQueryAttention, MixtureFeedForward
from tests.builders import a_model

HIDDEN, WIDTH, EXPERTS, CHOSEN = 8, 6, 4, 2


def a_mixture(**changes: object) -> Mixture:
    """A mixture in fp64 of four experts, of which each token passes two, with fixed weights."""
    fields = {"expert_count": EXPERTS, "experts_per_token": CHOSEN, "expert_ffn_size": WIDTH}
    mixture = Mixture(HIDDEN, MixtureFeedForward(**{**fields, **changes})).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in mixture.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return mixture


def tokens_of(batch: int, length: int) -> torch.Tensor:
    """Tokens in fp64, [batch, length, HIDDEN]."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(batch, length, HIDDEN, generator=generator, dtype=torch.float64)


def by_hand(mixture: Mixture, token: torch.Tensor) -> torch.Tensor:
    """One token's output, expert by expert."""
    shares = functional.softmax(mixture.router(token), dim=-1)
    known = shares.tolist()
    best = sorted(range(EXPERTS), key=lambda expert: -known[expert])[:CHOSEN]
    total = sum(shares[expert] for expert in best)
    output = torch.zeros_like(token)
    for expert in best:
        matrices = mixture.experts.gate_up_proj[expert]
        gate, up = matrices[0] @ token, matrices[-1] @ token
        inner = functional.silu(gate) * up if len(matrices) == 2 else functional.gelu(gate)
        output = output + shares[expert] / total * (mixture.experts.down_proj[expert] @ inner)
    return output


@pytest.mark.parametrize("gated", [True, False])
def test_each_token_is_the_weighted_sum_of_its_two_best_experts(gated: bool) -> None:
    mixture = a_mixture(gated=gated, router_bias=True)
    tokens = tokens_of(2, 5)
    expected = torch.stack([by_hand(mixture, token) for token in tokens.flatten(0, 1)])
    torch.testing.assert_close(mixture(tokens).flatten(0, 1), expected, rtol=1e-12, atol=1e-12)


def test_a_shared_expert_is_added_behind_its_gate() -> None:
    mixture = a_mixture(shared_ffn_size=5, shared_gate=True)
    assert mixture.shared is not None
    assert mixture.shared_gate is not None
    tokens = tokens_of(1, 3)
    routed = torch.stack([by_hand(mixture, token) for token in tokens[0]])
    gate = torch.sigmoid(tokens[0] @ mixture.shared_gate.weight.T)
    expected = routed + gate * mixture.shared(tokens[0])
    torch.testing.assert_close(mixture(tokens)[0], expected, rtol=1e-12, atol=1e-12)


def test_an_expert_that_no_token_chose_has_a_gradient_of_zeros() -> None:
    """ZeRO waits for the gradient of every parameter."""
    mixture = a_mixture()
    mixture(torch.ones(1, 1, HIDDEN, dtype=torch.float64)).sum().backward()
    gradient = mixture.experts.down_proj.grad
    assert gradient is not None
    assert sum(int(expert.abs().max() > 0) for expert in gradient) == CHOSEN


def test_a_decoder_with_experts_has_as_many_parameters_as_its_shapes_say() -> None:
    """Attention 4 x 64 x 64 less half of keys and values, two norms, router, experts; edges."""
    block = Block(
        attention=GroupedQueryAttention(head_count=4, key_value_head_count=2, head_size=16),
        feed_forward=MixtureFeedForward(expert_count=4, experts_per_token=2, expert_ffn_size=32),
    )
    with torch.device("meta"):
        model = Decoder(a_model(runs=(BlockRun(block=block, block_count=2),)))
    attention = 64 * 64 * 2 + 64 * 32 * 2
    experts = 4 * 3 * 64 * 32
    expected = 2 * (attention + 2 * 64 + 64 * 4 + experts) + 64 + 2 * 256 * 64
    assert sum(parameter.numel() for parameter in model.parameters()) == expected
    values = DrawnValues(initial_value, seed=0)
    materialise(model, declaration=model.declaration(), device=torch.device("cpu"), values=values)
    assert model.blocks["0"].mixture.experts.gate_up_proj.std().item() == pytest.approx(
        0.02, rel=0.05
    )
