"""Dense decoders of Hugging Face that differ from llama's in one or two parts.

apertus, arcee, bitnet, cwm, diffllama, doge, emu3, exaone4, glm, helium, hunyuan_v1_dense,
hyperclovax, internlm3, iquestcoder, jais2, ministral, moshi, nanochat, nemotron, olmo and stablelm;
each reader states the defaults of its configuration class (`configuration_<type>.py` of
transformers 5.23).
"""

from __future__ import annotations

from planner.errors import DocumentError, UnsupportedModelError
from planner.importers.fields import POSITION_LIMIT, Fields
from planner.importers.hugging_face.attention import (
    grouped_query,
    layer_count,
    layer_kinds,
    multi_head,
    periodic_windows,
    require_as_wide_as_the_model,
)
from planner.importers.hugging_face.decoder import rotary_decoder
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

INTERNLM3_ALIASES = {"qkv_bias": "attention_bias", "bias": "mlp_bias"}

_FULL, _SLIDING = "full_attention", "sliding_attention"
_CWM_PERIOD = 4
_EXAONE4_PERIOD = 4


def apertus(fields: Fields, name: str) -> ModelGraph:
    """Return an apertus: no gate, an activation with two weights, queries and keys normed."""
    feed_forward = DenseFeedForward(
        ffn_size=fields.size("intermediate_size"), gated=False, scale_elements=2
    )
    attention = _biased(fields).model_copy(update={"query_key_norm": True})
    block = Block(attention=attention, feed_forward=feed_forward)
    return rotary_decoder(fields, name, (block,) * layer_count(fields), positions=65536)


def iquestcoder(fields: Fields, name: str) -> ModelGraph:
    """Return an iquestcoder: a llama with eight key-value heads of 128 unless told."""
    fields = fields.filled({"num_key_value_heads": 8, "head_dim": 128})
    block = Block(attention=_biased(fields), feed_forward=_gated(fields))
    return rotary_decoder(fields, name, (block,) * layer_count(fields), positions=131_072)


def hyperclovax(fields: Fields, name: str) -> ModelGraph:
    """Return a hyperclovax: a granite with norms after its parts as well, unless told."""
    both = fields.flag("use_post_norm", True)
    block = Block(
        attention=_biased(fields),
        feed_forward=_gated(fields),
        norm_placement=NormPlacement.BOTH if both else NormPlacement.BEFORE,
    )
    return rotary_decoder(fields, name, (block,) * layer_count(fields), positions=2048)


def jais2(fields: Fields, name: str) -> ModelGraph:
    """Return a jais2: norms with biases, biases everywhere unless told, no gate."""
    fields = fields.filled({"attention_bias": True, "mlp_bias": True})
    block = Block(attention=_biased(fields), feed_forward=_plain(fields), norm=Norm.LAYER)
    return rotary_decoder(fields, name, (block,) * layer_count(fields), positions=8192)


def bitnet(fields: Fields, name: str) -> ModelGraph:
    """Return a bitnet: a llama with a norm before the last product of either part.

    Weights of fewer bits are what its checkpoints hold; it is priced as trained, in full.
    """
    attention = _biased(fields.filled({"num_key_value_heads": 5}))
    require_as_wide_as_the_model(fields, attention)
    feed_forward = _gated(fields, bias=False)
    widths = (fields.size("hidden_size"), feed_forward.ffn_size)
    block = Block(
        attention=attention,
        feed_forward=feed_forward,
        beside=Entry(norm=Norm.RMS, norm_widths=widths),
    )
    return rotary_decoder(fields, name, (block,) * layer_count(fields), positions=2048)


def diffllama(fields: Fields, name: str) -> ModelGraph:
    """Return a diffllama: scores weigh the values of both halves of its heads, in two passes.

    Raises:
        DocumentError: if its key-value heads have no halves.
    """
    bias = fields.flag("attention_bias", False)
    attention = grouped_query(fields).model_copy(
        update={"query_key_value_bias": bias, "output_bias": bias, "differential": True}
    )
    if attention.key_value_head_count % 2:
        raise DocumentError(
            "must be even, as halves of the heads are subtracted from one another",
            field=fields.spelling("num_key_value_heads"),
            value=attention.key_value_head_count,
            remedy="use an even number",
        )
    block = Block(
        attention=attention,
        feed_forward=_gated(fields, bias=False),
        beside=Entry(table_elements=4 * attention.head_size),  # what weighs the second half
    )
    return rotary_decoder(fields, name, (block,) * layer_count(fields), positions=2048)


def doge(fields: Fields, name: str) -> ModelGraph:
    """Return a doge: residuals have weights, and a product says which keys a head sees.

    Attention is counted as to all keys before.

    Raises:
        UnsupportedModelError: if its feed-forward looks experts up in tables.
    """
    if fields.flag("is_moe", False):
        raise UnsupportedModelError(
            "experts that are rows of a table cannot be priced",
            field=fields.spelling("is_moe"),
            value=True,
            remedy="trace the model with `meshwright trace`",
        )
    attention = _biased(fields).model_copy(update={"query_key_norm": True})
    heads, width = attention.key_value_head_count, fields.size("hidden_size")
    mask = Product(
        inner_size=heads * attention.head_size,
        outer_size=heads,
        bias=fields.flag("attention_bias", False),
    )
    block = Block(
        attention=attention,
        feed_forward=_gated(fields),
        beside=Entry(products=(mask,), table_elements=heads + 2 * width),
    )
    return rotary_decoder(fields, name, (block,) * layer_count(fields), positions=2048)


def internlm3(fields: Fields, name: str) -> ModelGraph:
    """Return an internlm3: a llama whose two kinds of biases go together, with heads of 128."""
    fields = fields.filled({"num_key_value_heads": 2, "head_dim": 128})
    block = Block(attention=_biased(fields), feed_forward=_gated(fields))
    return rotary_decoder(fields, name, (block,) * layer_count(fields), positions=32768)


def olmo(fields: Fields, name: str) -> ModelGraph:
    """Return an olmo of the first generation: a llama whose norms have no weights."""
    block = Block(
        attention=_biased(fields),
        feed_forward=_gated(fields, bias=False),
        norm=Norm.WEIGHTLESS,
    )
    return rotary_decoder(fields, name, (block,) * layer_count(fields), positions=2048)


def moshi(fields: Fields, name: str) -> ModelGraph:
    """Return the decoder of a moshi: its embedding has one row more than its head.

    Raises:
        UnsupportedModelError: if its class has the codec and the decoder of codebooks as well.
    """
    named = fields.first_text("architectures")
    if named is not None and named.endswith("ForConditionalGeneration"):
        raise UnsupportedModelError(
            "has a codec and a decoder of codebooks, which a model graph has no part for",
            field="architectures",
            value=named[:80],
            remedy="give MoshiForCausalLM for its decoder alone, or trace the model with "
            "`meshwright trace --transformers config.json`",
        )
    window = fields.size("sliding_window", 3000, limit=POSITION_LIMIT)
    block = Block(
        attention=grouped_query(fields).model_copy(update={"sliding_window_tokens": window}),
        feed_forward=DenseFeedForward(ffn_size=fields.size("ffn_dim") // 2),
        norm=Norm.RMS_FLOAT32,
    )
    columns = fields.size("vocab_size")
    return rotary_decoder(
        fields.replaced({"vocab_size": columns + 1, "tie_word_embeddings": False}),
        name,
        (block,) * layer_count(fields),
        positions=3000,
    ).model_copy(update={"head_size": columns})


def nanochat(fields: Fields, name: str) -> ModelGraph:
    """Return a nanochat: no norm has weights, be it of queries and keys; no gate."""
    attention = _biased(fields).model_copy(
        update={"query_key_norm": True, "query_key_norm_weight": False}
    )
    block = Block(
        attention=attention,
        feed_forward=DenseFeedForward(ffn_size=fields.size("intermediate_size"), gated=False),
        norm=Norm.WEIGHTLESS,
    )
    return rotary_decoder(fields, name, (block,) * layer_count(fields), positions=2048)


def arcee(fields: Fields, name: str) -> ModelGraph:
    """Return an arcee (AFM): a llama whose feed-forward has no gate."""
    block = Block(attention=_biased(fields), feed_forward=_plain(fields))
    return rotary_decoder(fields, name, (block,) * layer_count(fields), positions=4096)


def cwm(fields: Fields, name: str) -> ModelGraph:
    """Return a cwm: the first layer of every four sees all, the others slide."""
    kinds = [_SLIDING if index % _CWM_PERIOD else _FULL for index in range(layer_count(fields))]
    attention = grouped_query(fields, key_value_heads=8, head_size=128)
    shape = Block(attention=attention, feed_forward=_gated(fields))
    return _windowed(fields, name, shape, kinds, window=8192, positions=131_072)


def ministral(fields: Fields, name: str) -> ModelGraph:
    """Return a ministral: it slides unless told, layer by layer."""
    window = fields.optional_size("sliding_window", 4096, limit=POSITION_LIMIT)
    kinds = [_FULL if window is None else _SLIDING] * layer_count(fields)
    attention = grouped_query(fields, key_value_heads=8)
    shape = Block(attention=attention, feed_forward=_gated(fields, bias=False))
    return _windowed(fields, name, shape, kinds, window=4096, positions=4096 * 32)


def glm(fields: Fields, name: str) -> ModelGraph:
    """Return a glm: biases on queries, keys and values, none on the output."""
    attention = grouped_query(fields, key_value_heads=2, head_size=128).model_copy(
        update={"query_key_value_bias": fields.flag("attention_bias", True)}
    )
    block = Block(attention=attention, feed_forward=_gated(fields, bias=False))
    return rotary_decoder(fields, name, (block,) * layer_count(fields), positions=131_072)


def helium(fields: Fields, name: str) -> ModelGraph:
    """Return a helium: heads of 128, no bias on the output.

    Raises:
        DocumentError: if its heads together are not as wide as the model, as its output needs.
    """
    attention = grouped_query(fields, key_value_heads=20, head_size=128).model_copy(
        update={"query_key_value_bias": fields.flag("attention_bias", False)}
    )
    require_as_wide_as_the_model(fields, attention)
    block = Block(attention=attention, feed_forward=_gated(fields), norm=Norm.RMS_FLOAT32)
    return rotary_decoder(fields, name, (block,) * layer_count(fields), positions=4096)


def hunyuan_v1_dense(fields: Fields, name: str) -> ModelGraph:
    """Return a hunyuan_v1_dense: queries and keys normed per head."""
    attention = _biased(fields).model_copy(update={"query_key_norm": True})
    block = Block(attention=attention, feed_forward=_gated(fields, bias=False))
    return rotary_decoder(fields, name, (block,) * layer_count(fields), positions=2048)


def emu3_text(fields: Fields, name: str) -> ModelGraph:
    """Return the decoder of an emu3: a llama with eight key-value heads unless told."""
    attention = grouped_query(fields, key_value_heads=8)
    bias = fields.flag("attention_bias", False)
    attention = attention.model_copy(update={"query_key_value_bias": bias, "output_bias": bias})
    block = Block(attention=attention, feed_forward=_gated(fields))
    return rotary_decoder(fields, name, (block,) * layer_count(fields), positions=9216)


def exaone4(fields: Fields, name: str) -> ModelGraph:
    """Return an exaone4: norms after each part alone, and positions only where layers slide.

    Raises:
        UnsupportedModelError: if the pattern of windows is written in letters.
    """
    if fields.text("sliding_window_pattern") is not None and fields.texts("layer_types") is None:
        raise UnsupportedModelError(
            "is written in letters, which its class does not read",
            field=fields.spelling("sliding_window_pattern"),
            value=fields.text("sliding_window_pattern"),
            remedy="write the number of layers of which one sees all, or give layer_types",
        )
    window = fields.optional_size("sliding_window", 4096, limit=POSITION_LIMIT)
    period = 1
    if window is not None and fields.text("sliding_window_pattern") is None:
        period = fields.size("sliding_window_pattern", _EXAONE4_PERIOD)
    attention = grouped_query(fields, key_value_heads=32).model_copy(
        update={"query_key_norm": True}
    )
    blocks = [
        Block(
            attention=attention.model_copy(
                update={
                    "sliding_window_tokens": slides,
                    "rotary": window is None or slides is not None,
                }
            ),
            feed_forward=_gated(fields, bias=False),
            norm_placement=NormPlacement.AFTER,
        )
        for slides in periodic_windows(fields, window=4096, period=period)
    ]
    return rotary_decoder(fields, name, blocks, positions=2048)


def nemotron(fields: Fields, name: str) -> ModelGraph:
    """Return a nemotron (3, 4 and Minitron): norms with biases, a feed-forward without a gate."""
    block = Block(attention=_biased(fields), feed_forward=_plain(fields), norm=Norm.LAYER)
    return rotary_decoder(fields, name, (block,) * layer_count(fields), positions=4096)


def stablelm(fields: Fields, name: str) -> ModelGraph:
    """Return a stablelm: norms with biases; halves that run side by side share one.

    Its class makes no product of `head_dim`, whatever that says.

    Raises:
        UnsupportedModelError: if every head has norms of its own, as those of 12B do.
    """
    if fields.flag("qk_layernorm", False):
        raise UnsupportedModelError(
            "norms of each head of queries and keys cannot be priced",
            field="qk_layernorm",
            value=True,
            remedy="trace the model with `meshwright trace`",
        )
    attention = grouped_query(fields, key_value_heads=32).model_copy(
        update={
            "head_size": multi_head(fields).head_size,
            "query_key_value_bias": fields.flag("use_qkv_bias", False),
        }
    )
    shared = fields.flag("use_parallel_residual", False)
    block = Block(
        attention=attention,
        feed_forward=_gated(fields, bias=False),
        norm=Norm.LAYER,
        norm_placement=NormPlacement.SHARED if shared else NormPlacement.BEFORE,
    )
    return rotary_decoder(fields, name, (block,) * layer_count(fields), positions=4096)


def _biased(fields: Fields) -> GroupedQueryAttention:
    bias = fields.flag("attention_bias", False)
    return grouped_query(fields).model_copy(
        update={"query_key_value_bias": bias, "output_bias": bias}
    )


def _gated(fields: Fields, *, bias: bool | None = None) -> DenseFeedForward:
    return DenseFeedForward(
        ffn_size=fields.size("intermediate_size"),
        bias=fields.flag("mlp_bias", False) if bias is None else bias,
    )


def _plain(fields: Fields) -> DenseFeedForward:
    return _gated(fields).model_copy(update={"gated": False})


def _windowed(
    fields: Fields, name: str, block: Block, kinds: list[str], *, window: int, positions: int
) -> ModelGraph:
    """Return a decoder of `block` whose layers slide by `layer_types`, else as `kinds` says."""
    given = fields.optional_size("sliding_window", window, limit=POSITION_LIMIT)
    slides = {
        "attention": block.attention.model_copy(update={"sliding_window_tokens": given}),
    }
    blocks = [
        block.model_copy(update=slides) if kind == _SLIDING else block
        for kind in layer_kinds(fields, kinds, known=(_FULL, _SLIDING))
    ]
    return rotary_decoder(fields, name, blocks, positions=positions)
