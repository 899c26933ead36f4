"""Older decoders of Hugging Face with biases and LayerNorm, beside those after GPT-2 and GPT-3.

biogpt, codegen, cpmant, ctrl, fuyu, gpt_neox_japanese, openai-gpt, persimmon and xglm. Each reader
states the defaults of its configuration class (`configuration_<type>.py` of transformers 5.23).
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.errors import UnsupportedModelError
from planner.importers.fields import POSITION_LIMIT, Fields, require_at_most
from planner.importers.hugging_face.attention import BIASED, layer_count, multi_head
from planner.importers.hugging_face.decoder import rotary_decoder
from planner.importers.hugging_face.gpt_kin import GPT_BIGCODE_ALIASES, gptj
from planner.schema.model import (
    Block,
    DenseFeedForward,
    Entry,
    GroupedQueryAttention,
    ModelGraph,
    Norm,
    NormPlacement,
    Product,
)

N_EMBD_ALIASES = GPT_BIGCODE_ALIASES
XGLM_ALIASES = {
    "hidden_size": "d_model",
    "num_attention_heads": "attention_heads",
    "num_hidden_layers": "num_layers",
}
codegen = gptj  # its fused product of queries, keys and values has the shapes of separate ones
_BIOGPT_FIRST_POSITION = 2
_WIDENED = 4


def biogpt(fields: Fields, name: str) -> ModelGraph:
    """Return a biogpt: learned positions of which two stay unused, biases everywhere, tied."""
    attention = multi_head(fields).model_copy(update=BIASED)
    block = _block(attention, fields.size("intermediate_size"))
    graph = rotary_decoder(fields, name, (block,) * layer_count(fields), positions=1024, tied=True)
    rows = graph.maximum_sequence_length + _BIOGPT_FIRST_POSITION
    return graph.model_copy(update={"learned_position_count": rows})


def xglm(fields: Fields, name: str) -> ModelGraph:
    """Return an xglm: angles for positions, biases everywhere, tied.

    Raises:
        UnsupportedModelError: if it attends to an encoder.
    """
    if fields.flag("add_cross_attention", False):
        raise UnsupportedModelError(
            "cross-attention cannot be priced",
            field=fields.spelling("add_cross_attention"),
            value=True,
            remedy="leave it out, or trace the model with `meshwright trace`",
        )
    attention = multi_head(fields, "attention_heads", "d_model").model_copy(update=BIASED)
    block = _block(attention, fields.size("ffn_dim"))
    blocks = (block,) * layer_count(fields, "num_layers")
    return rotary_decoder(fields, name, blocks, positions=2048, tied=True, width="d_model")


def ctrl(fields: Fields, name: str) -> ModelGraph:
    """Return a ctrl: angles for positions, biases everywhere, the tied head's too."""
    attention = multi_head(fields, "n_head", "n_embd").model_copy(update=BIASED)
    blocks = (_block(attention, fields.size("dff")),) * layer_count(fields, "n_layer")
    graph = _of_positions(fields, name, blocks, positions=256)
    return graph.model_copy(update={"head_bias": True})


def openai_gpt(fields: Fields, name: str) -> ModelGraph:
    """Return the first GPT: learned positions, norms after each part, none at the end, tied."""
    attention = multi_head(fields, "n_head", "n_embd").model_copy(update=BIASED)
    block = _block(attention, _WIDENED * fields.size("n_embd")).model_copy(
        update={"norm_placement": NormPlacement.AFTER}
    )
    blocks = (block,) * layer_count(fields, "n_layer")
    graph = _of_positions(fields, name, blocks, positions=512)
    rows = graph.maximum_sequence_length
    return graph.model_copy(update={"learned_position_count": rows, "final_norm": None})


def gpt_neox_japanese(fields: Fields, name: str) -> ModelGraph:
    """Return a gpt_neox_japanese: no biases but that of the last block's attention, tied."""
    width = fields.size("hidden_size")
    attention = multi_head(fields)
    feed_forward = DenseFeedForward(
        ffn_size=width * fields.size("intermediate_multiple_size", _WIDENED), gated=False
    )
    block = Block(attention=attention, feed_forward=feed_forward, norm=Norm.LAYER)
    last = block.model_copy(
        update={"attention": attention.model_copy(update={"output_bias": True})}
    )
    blocks = [block] * (layer_count(fields) - 1) + [last]
    return rotary_decoder(fields, name, blocks, positions=2048, tied=True)


def persimmon(fields: Fields, name: str) -> ModelGraph:
    """Return a persimmon: biases everywhere, those of the norms of queries and keys too."""
    normed = fields.flag("qk_layernorm", True)
    attention = multi_head(fields).model_copy(
        update={**BIASED, "rotary": True, "query_key_norm": normed}
    )
    biases = Entry(table_elements=2 * attention.head_size) if normed else None
    block = _block(attention, fields.size("intermediate_size")).model_copy(
        update={"beside": biases}
    )
    return rotary_decoder(fields, name, (block,) * layer_count(fields), positions=16384)


def fuyu(fields: Fields, name: str) -> ModelGraph:
    """Return a fuyu: a persimmon before which one product makes tokens of patches of an image.

    The decoder's fields may stand beside the others, as in released files.
    """
    own = fields.is_mapping("text_config")
    text = persimmon(fields.section("text_config") if own else fields, name)
    patch, side = fields.size("patch_size", 30), fields.size("image_size", 300)
    require_at_most("patch_size", patch, limit_name="image_size", limit=side)
    tokens = (side // patch) ** 2
    product = Product(
        inner_size=fields.size("num_channels", 3) * patch**2,
        outer_size=text.hidden_size,
        bias=True,
        tokens_per_sequence=tokens,
    )
    first = text.runs[0].model_copy(update={"entry": Entry(products=(product,))})
    said = f"one image of {side} pixels a sequence was assumed, {tokens} of its tokens"
    return ModelGraph(
        **{
            **dict(text),
            "architecture": "fuyu",
            "tied_embeddings": fields.flag("tie_word_embeddings", False),
            "runs": (first, *text.runs[1:]),
            "assumptions": (*text.assumptions, said),
        }
    )


def cpmant(fields: Fields, name: str) -> ModelGraph:
    """Return a cpmant: a gate, no biases, biases of attention by distance and by kind of text.

    Prompts have rows of their own in the embedding, and the head is not tied to it.
    """
    heads, kinds = fields.size("num_attention_heads"), fields.size("segment_types", 32)
    width, size = fields.size("hidden_size"), fields.size("dim_head", 128)
    attention = GroupedQueryAttention(
        head_count=heads, key_value_head_count=heads, head_size=size, rotary=False
    )
    feed_forward = DenseFeedForward(ffn_size=fields.size("dim_ff", 10240))
    blocks = (Block(attention=attention, feed_forward=feed_forward),) * layer_count(fields)
    graph = rotary_decoder(fields, name, blocks, positions=2048)
    buckets = fields.size("position_bias_num_buckets", 512) + kinds**2
    entry = Entry(table_elements=kinds * width + buckets * heads)
    prompts = fields.size("prompt_types", 32) * fields.size("prompt_length", 32)
    longest = fields.size("position_bias_max_distance", 2048, limit=POSITION_LIMIT)
    return graph.model_copy(
        update={
            "vocabulary_size": graph.vocabulary_size + prompts,
            "head_size": graph.vocabulary_size,
            "tied_embeddings": False,
            "maximum_sequence_length": longest,
            "runs": (graph.runs[0].model_copy(update={"entry": entry}), *graph.runs[1:]),
        }
    )


def _of_positions(
    fields: Fields, name: str, blocks: Sequence[Block], *, positions: int
) -> ModelGraph:
    """Return a tied decoder whose longest sequence stands in `n_positions`."""
    longest = fields.size("n_positions", positions, limit=POSITION_LIMIT)
    graph = rotary_decoder(fields, name, blocks, positions=longest, tied=True, width="n_embd")
    return graph.model_copy(update={"maximum_sequence_length": longest})


def _block(attention: GroupedQueryAttention, ffn_size: int) -> Block:
    return Block(
        attention=attention,
        feed_forward=DenseFeedForward(ffn_size=ffn_size, gated=False, bias=True),
        norm=Norm.LAYER,
    )
