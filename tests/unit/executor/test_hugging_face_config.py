"""What of a Hugging Face configuration is refused, and what its tensor-parallel plan becomes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from executor.errors import ModelMismatchError, UnsupportedPlanError
from executor.models.first_values import DrawnValues, padding_rows
from executor.models.huggingface import RotaryChain, hugging_face_chain, is_hugging_face
from executor.models.transformers_plan import read_plan

FIELDS: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 32},
    "qwen3": {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 4,
        "vocab_size": 32,
    },
}
FIELDS["mixtral"] = {**FIELDS["qwen3"], "num_local_experts": 4}
FIELDS["mistral"] = {**FIELDS["qwen3"], "sliding_window": 3}


def a_model(family: str, *, attention: str = "sdpa", **changes: Any) -> Any:
    """A model of `family` on the meta device."""
    settled = {"bos_token_id": 0, "eos_token_id": 0, **FIELDS[family], **changes}
    with torch.device("meta"):
        config = AutoConfig.for_model(family, **settled)
        return AutoModelForCausalLM.from_config(config, attn_implementation=attention)


@pytest.mark.parametrize(
    ("family", "changes", "field"),
    [
        ("qwen3", {"attention_dropout": 0.1}, "config.attention_dropout"),
        ("mixtral", {"router_jitter_noise": 0.1}, "config.router_jitter_noise"),
        ("mixtral", {"output_router_logits": True}, "config.output_router_logits"),
        ("qwen3", {"attention": "eager"}, "config.attn_implementation"),
    ],
)
def test_what_no_layout_can_train_alike_is_refused_by_field(
    family: str, changes: dict[str, Any], field: str
) -> None:
    with pytest.raises(UnsupportedPlanError) as caught:
        hugging_face_chain(a_model(family, **changes))
    assert caught.value.field == field
    assert caught.value.remedy


def test_a_plan_of_transformers_becomes_the_blocks_declaration() -> None:
    _, declaration = hugging_face_chain(a_model("qwen3"))
    block = declaration.block
    attention = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    assert block.column == (*attention, "mlp.gate_proj", "mlp.up_proj")
    assert block.row == ("self_attn.o_proj", "mlp.down_proj")
    assert block.head_norms == ("self_attn.q_norm", "self_attn.k_norm")
    assert block.experts is None


def test_a_style_that_has_no_counterpart_is_an_obstacle_to_tensor_parallelism() -> None:
    read = read_plan({"layers.*.self_attn.q_proj": "diagonal"}, has_experts=False)
    assert read.obstacle == "transformers' plan has self_attn.q_proj diagonal"


def test_experts_keep_their_weights_as_gate_and_up() -> None:
    chain, declaration = hugging_face_chain(a_model("mixtral"))
    experts = chain.get_submodule("model.layers.0.mlp.experts")
    assert experts.gate_up_proj.shape == (4, 2, 24, 16)
    assert experts.down_proj.shape == (4, 16, 24)
    assert declaration.shapes.expert_count == 4
    assert declaration.shapes.expert_ffn_size == 24
    assert declaration.block.experts == "mlp.experts"


def test_a_window_masks_what_is_further_back() -> None:
    chain, _ = hugging_face_chain(a_model("mistral"))
    assert isinstance(chain, RotaryChain)
    mask = chain._mask(chain.windows[0], torch.arange(5), None)
    assert mask is not None
    assert mask[0, 0].int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [0, 1, 1, 1, 0],
        [0, 0, 1, 1, 1],
    ]
    assert chain._mask(chain.windows[0], torch.arange(3)) is None


def test_a_sequence_longer_than_the_positions_that_gpt2_knows_is_refused() -> None:
    model = a_model("gpt2", n_positions=8, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0)
    chain, _ = hugging_face_chain(model)
    assert chain(torch.zeros(1, 8, dtype=torch.long, device="meta")).shape == (1, 8, 32)
    with pytest.raises(ModelMismatchError, match=r"job\.sequence_length.*8 positions.*got 9"):
        chain(torch.zeros(1, 9, dtype=torch.long, device="meta"))


@pytest.mark.parametrize("family", ["gpt2", "qwen3", "mixtral"])
def test_parameters_begin_as_transformers_draws_them(family: str) -> None:
    """Deviations are equal within six of their own; constants and the row of padding are so."""
    fields = {**FIELDS[family], "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 5}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **fields))
    theirs = {name: item.detach() for name, item in model.named_parameters()}
    padding = model.get_input_embeddings().weight[5].clone()
    chain, declaration = hugging_face_chain(model)
    assert declaration.initial_value is not None
    values = DrawnValues(declaration.initial_value, seed=0, zero_rows=padding_rows(chain))
    for name, parameter in chain.named_parameters():
        everything = tuple(slice(0, size) for size in parameter.shape)
        ours = values.piece(name, parameter.shape, everything)
        if not theirs[name].std():
            assert torch.equal(ours.flatten(), theirs[name].flatten()), name
            continue
        near = pytest.approx(float(theirs[name].std()), rel=6 / ours.numel() ** 0.5)
        assert float(ours.std()) == near, name
        if name == f"{declaration.embedding}.weight":
            assert torch.equal(ours[5], torch.zeros(16)) is (not padding.any())


def test_a_module_of_ones_own_is_no_hugging_face_model() -> None:
    assert not is_hugging_face(torch.nn.Linear(2, 2))
    assert is_hugging_face(a_model("qwen3"))
