"""Gemma-4 of Hugging Face: wider heads where all is seen, experts beside a dense part, a tower.

Layers of the small ones have inputs of their own, from a second embedding, and the last of them
share keys and values. Defaults are those of `configuration_gemma4.py` of transformers 5.23.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.errors import DocumentError
from planner.importers.fields import POSITION_LIMIT, Fields, require_at_most, require_divides
from planner.importers.hugging_face.attention import grouped_query, layer_count, layer_kinds
from planner.importers.hugging_face.decoder import rotary_decoder
from planner.importers.hugging_face.gemma4_audio import audio_parameter_count
from planner.importers.hugging_face.gemma4_tower import gemma4_tower
from planner.importers.hugging_face.towers import joined
from planner.schema.model import (
    Block,
    DenseFeedForward,
    Entry,
    FeedForward,
    GroupedQueryAttention,
    MixtureFeedForward,
    ModelGraph,
    Norm,
    NormPlacement,
    Product,
)

_FULL, _SLIDING = "full_attention", "sliding_attention"
_UNIFIED_IMAGE_TOKENS = 280  # as gemma4's own unless told
_SOUND_TOKENS = 750  # of 40 ms each
_PERIOD = 6  # five layers slide, the sixth sees all


def gemma4(fields: Fields, name: str) -> ModelGraph:
    """Return a gemma4: its vision tower and decoder; that its audio tower is left out is said."""
    text = fields.section("text_config", defaults={"model_type": "gemma4_text"})
    graph = gemma4_text(text, name)
    said = []
    if fields.is_mapping("audio_config"):
        left_out = audio_parameter_count(fields, graph.hidden_size)
        said.append(
            f"the audio tower is left out: neither the memory of its {left_out:,} parameters nor "
            "their work is counted"
        )
    tied = fields.flag("tie_word_embeddings", graph.tied_embeddings)
    graph = graph.model_copy(
        update={"architecture": "gemma4", "tied_embeddings": tied, "assumptions": tuple(said)}
    )
    if not fields.is_mapping("vision_config"):
        return graph
    tower, image = gemma4_tower(fields, graph)
    return joined(fields, graph, tower, image=image, tied=tied)


def gemma4_unified_text(fields: Fields, name: str) -> ModelGraph:
    """Return the decoder of a gemma4_unified: a gemma4_text without inputs of its layers' own."""
    sizes = {"sliding_window": 1024, "max_position_embeddings": 262_144}
    return gemma4_text(fields.filled(sizes).replaced({"hidden_size_per_layer_input": 0}), name)


def gemma4_text(fields: Fields, name: str) -> ModelGraph:
    """Return the decoder: norms before and after each part, keys that may be values as well."""
    count = layer_count(fields)
    default_kinds = [_SLIDING if (index + 1) % _PERIOD else _FULL for index in range(count)]
    kinds = [*layer_kinds(fields, default_kinds, known=(_FULL, _SLIDING))]
    kinds[-1] = _FULL  # as its class forces
    first_sharing = count - _sharing_count(fields, kinds)
    blocks = [
        _block(fields, kind, sharing=index >= first_sharing) for index, kind in enumerate(kinds)
    ]
    graph = rotary_decoder(fields, name, blocks, positions=131_072, tied=True)
    return _with_layer_inputs(fields, graph, kinds if first_sharing < count else ())


def _block(fields: Fields, kind: str, *, sharing: bool) -> Block:
    attention = _sliding(fields) if kind == _SLIDING else _seeing_all(fields)
    doubled = sharing and fields.flag("use_double_wide_mlp", False)
    return Block(
        attention=attention.model_copy(update={"shares_keys": sharing}),
        feed_forward=_feed_forward(fields, doubled=doubled),
        norm=Norm.RMS_FLOAT32,
        norm_placement=NormPlacement.BOTH,
        layer_input_size=_layer_input_size(fields),
    )


def _sharing_count(fields: Fields, kinds: Sequence[str]) -> int:
    """Return how many of the last layers read an earlier layer's keys and values.

    Raises:
        DocumentError: if a kind of layer among them has no layer before to read.
    """
    count = fields.size("num_kv_shared_layers", 0, minimum=0)
    if count and set(kinds[: max(len(kinds) - count, 0)]) != set(kinds):
        raise DocumentError(
            "leaves no layer of each kind whose keys and values the last ones could read",
            field=fields.spelling("num_kv_shared_layers"),
            value=count,
            remedy="use fewer, or 0",
        )
    return count


def _layer_input_size(fields: Fields) -> int | None:
    return fields.size("hidden_size_per_layer_input", 256, minimum=0) or None


def _with_layer_inputs(fields: Fields, graph: ModelGraph, sharing: Sequence[str]) -> ModelGraph:
    """Return the decoder with its second embedding, and with what travels to later layers.

    All layers' inputs are made at the start, as their class makes them; the last layers' `sharing`
    kinds read the keys and values of one layer each.
    """
    size = _layer_input_size(fields)
    width = graph.block_count * (size or 0)
    carried = width + sum(_key_value_width(fields, kind) for kind in set(sharing))
    runs = [run.model_copy(update={"carried_width": carried}) for run in graph.runs]
    if size is not None:
        rows = fields.size("vocab_size_per_layer_input", 262_144)
        product = Product(inner_size=graph.hidden_size, outer_size=width)
        entry = Entry(products=(product,), norm=Norm.RMS, table_elements=rows * width + size)
        runs[0] = runs[0].model_copy(update={"entry": entry})
    return ModelGraph.from_fields({**dict(graph), "runs": tuple(runs)}, source=graph.name)


def _key_value_width(fields: Fields, kind: str) -> int:
    attention = _sliding(fields) if kind == _SLIDING else _seeing_all(fields)
    return 2 * attention.key_value_head_count * attention.head_size


def _attention(fields: Fields) -> GroupedQueryAttention:
    bias = fields.flag("attention_bias", False)
    both_sides = fields.text("use_bidirectional_attention") == "all"
    return grouped_query(fields, key_value_heads=4, head_size=256).model_copy(
        update={
            "query_key_value_bias": bias,
            "output_bias": bias,
            "query_key_norm": True,
            "causal": not both_sides,
        }
    )


def _sliding(fields: Fields) -> GroupedQueryAttention:
    attention = _attention(fields)
    window = fields.size("sliding_window", 512, limit=POSITION_LIMIT)
    own = window if attention.causal else window // 2 + 1
    return attention.model_copy(update={"sliding_window_tokens": own})


def _seeing_all(fields: Fields) -> GroupedQueryAttention:
    """Return attention of layers that see all: its own head size, perhaps fewer key-value heads."""
    attention = _attention(fields)
    same = fields.flag("attention_k_eq_v", False)
    heads = attention.key_value_head_count
    if same:
        heads = fields.optional_size("num_global_key_value_heads") or heads
        require_divides(
            fields.spelling("num_global_key_value_heads"),
            heads,
            fields.spelling("num_attention_heads"),
            attention.head_count,
        )
    return attention.model_copy(
        update={
            "head_size": fields.size("global_head_dim", 512),
            "key_value_head_count": heads,
            "values_are_keys": same,
        }
    )


def _feed_forward(fields: Fields, *, doubled: bool) -> FeedForward:
    """Return the dense part, with `enable_moe_block` as the shared expert of a mixture.

    It is `doubled` in width where layers share keys, if `use_double_wide_mlp` says so.

    Beside the mixture stand three norms more, a scale of the router's row and one per expert.
    """
    width = fields.size("intermediate_size") * (2 if doubled else 1)
    if not fields.flag("enable_moe_block", False):
        return DenseFeedForward(ffn_size=width)
    count, chosen = fields.size("num_experts"), fields.size("top_k_experts")
    require_at_most("top_k_experts", chosen, limit_name="num_experts", limit=count)
    return MixtureFeedForward(
        expert_count=count,
        experts_per_token=chosen,
        expert_ffn_size=fields.size("moe_intermediate_size"),
        shared_ffn_size=width,
        scale_elements=4 * fields.size("hidden_size") + count,
    )


def gemma4_unified(fields: Fields, name: str) -> ModelGraph:
    """Return a gemma4_unified: products and norms make tokens of pixels and sound, no tower does.

    Sequences are assumed to have one image and 30 s of sound, where there are parts for them.
    """
    text = gemma4_unified_text(fields.section("text_config"), name)
    seen, heard = (fields.is_mapping(f"{kind}_config") for kind in ("vision", "audio"))
    entry, said = Entry(), []
    if seen:
        entry = _pixels(fields.section("vision_config"), text.hidden_size)
        said.append(f"one image of {_UNIFIED_IMAGE_TOKENS} tokens a sequence was assumed")
    if heard:
        width = fields.section("audio_config").size("audio_embed_dim", 640)
        sound = Product(
            inner_size=width, outer_size=text.hidden_size, tokens_per_sequence=_SOUND_TOKENS
        )
        entry = entry.model_copy(update={"products": (*entry.products, sound)})
        said.append(f"30 s of sound a sequence were assumed, {_SOUND_TOKENS} tokens")
    first = text.runs[0].model_copy(update={"entry": entry}) if seen or heard else text.runs[0]
    return ModelGraph(
        **{
            **dict(text),
            "architecture": "gemma4_unified",
            "tied_embeddings": fields.flag("tie_word_embeddings", True),
            "runs": (first, *text.runs[1:]),
            "assumptions": (*text.assumptions, *said),
        }
    )


def _pixels(vision: Fields, output: int) -> Entry:
    """Return the products of a square of patches, their three norms and positions."""
    side = vision.size("patch_size", 16) * vision.size("pooling_kernel_size", 3)
    width, rows = vision.size("mm_embed_dim", 3840), vision.size("mm_posemb_size", 1120)
    tokens = _UNIFIED_IMAGE_TOKENS
    inner = 3 * side**2
    return Entry(
        products=(
            Product(inner_size=inner, outer_size=width, bias=True, tokens_per_sequence=tokens),
            Product(
                inner_size=vision.size("output_proj_dims", 3840),
                outer_size=output,
                tokens_per_sequence=tokens,
            ),
        ),
        norm_widths=(inner, width, width),
        table_elements=2 * rows * width,
    )
