"""ERNIE 4.5 of Hugging Face, dense and with experts.

Each reader states the defaults of its configuration class (`configuration_<type>.py` of
transformers 5.23).
"""

from __future__ import annotations

from planner.errors import UnsupportedModelError
from planner.importers.fields import Fields, require_at_most
from planner.importers.hugging_face.attention import grouped_query, layer_count
from planner.importers.hugging_face.decoder import rotary_decoder
from planner.schema.model import Block, DenseFeedForward, MixtureFeedForward, ModelGraph

ERNIE4_5_MOE_ALIASES = {"num_experts": "moe_num_experts", "num_experts_per_tok": "moe_k"}


def ernie4_5(fields: Fields, name: str) -> ModelGraph:
    """Return an ernie4_5: a llama with heads of 128 and tied embeddings."""
    bias = fields.flag("use_bias", False)
    attention = grouped_query(fields, key_value_heads=2, head_size=128).model_copy(
        update={"query_key_value_bias": bias, "output_bias": bias}
    )
    feed_forward = DenseFeedForward(ffn_size=fields.size("intermediate_size"), bias=bias)
    block = Block(attention=attention, feed_forward=feed_forward)
    blocks = (block,) * layer_count(fields)
    return rotary_decoder(fields, name, blocks, positions=131_072, tied=True)


def ernie4_5_moe(fields: Fields, name: str) -> ModelGraph:
    """Return an ernie4_5_moe: a dense layer first, then experts beside shared ones.

    Raises:
        UnsupportedModelError: if it has biases, as no released one has.
    """
    if fields.flag("use_bias", False):
        raise UnsupportedModelError(
            "biases in shared experts cannot be priced",
            field="use_bias",
            value=True,
            remedy="set it to false or leave it out",
        )
    mixture = _mixture(fields)
    dense = DenseFeedForward(ffn_size=fields.size("intermediate_size"))
    attention = grouped_query(fields, key_value_heads=4)
    blocks = [
        Block(attention=attention, feed_forward=mixture if routes else dense)
        for routes in _routed_layers(fields)
    ]
    return rotary_decoder(fields, name, blocks, positions=131_072, tied=True)


def _routed_layers(fields: Fields) -> list[bool]:
    """Return which layers route: every `moe_layer_interval`th between the first and the last.

    An end of -1 stands for the last layer, as in released configurations.
    """
    first = fields.size("moe_layer_start_index", 1, minimum=0)
    last = fields.size("moe_layer_end_index", -1, minimum=-1)
    interval = fields.size("moe_layer_interval", 1)
    count = layer_count(fields)
    end = count - 1 if last < 0 else last
    return [first <= index <= end and (index + 1) % interval == 0 for index in range(count)]


def _mixture(fields: Fields) -> MixtureFeedForward:
    """Return the experts; their scores' correction, one number each, is a parameter here."""
    count, chosen = fields.size("moe_num_experts", 64), fields.size("moe_k", 6)
    require_at_most(
        fields.spelling("moe_k"),
        chosen,
        limit_name=fields.spelling("moe_num_experts"),
        limit=count,
    )
    width = fields.size("moe_intermediate_size", 1536)
    return MixtureFeedForward(
        expert_count=count,
        experts_per_token=chosen,
        expert_ffn_size=width,
        shared_ffn_size=width * fields.size("moe_num_shared_experts", 2, minimum=0),
        scale_elements=count,
    )
