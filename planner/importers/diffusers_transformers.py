"""Transformers of diffusers by their config.json -> model graph, one reader per `_class_name`.

DiT, Flux, SD3, Wan and HunyuanVideo: patches of a latent, and where text stands in the same
sequence its tokens too, are the tokens of one model without a vocabulary. What conditions a block
(time, a class) is one row a sequence, whose products cost nothing beside those of tokens: their
weights are counted, their FLOPs are not, and tensor-parallel ranks hold them whole. Of blocks with
weights of their own for text, a token passes one of the two sets, and ranks split both.

Source: diffusers 0.42.1, `models/transformers/*.py`; each reader has the defaults of its class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from planner.errors import UnsupportedModelError
from planner.importers.fields import Fields
from planner.importers.hugging_face.attention import layer_count
from planner.importers.hugging_face.beside import with_unread
from planner.importers.hugging_face.decoder import runs
from planner.schema.model import (
    Block,
    BlockRun,
    DenseFeedForward,
    Entry,
    Exit,
    GroupedQueryAttention,
    ModelGraph,
    Norm,
    NormPlacement,
    Product,
    RunPart,
)

_FREQUENCIES = 256  # of a time step, as sines and cosines
_WIDENED = 4
_FLUX_TEXT, _SD3_TEXT, _HUNYUAN_TEXT, _WAN_TEXT = 512, 333, 256, 512
_FLUX_PATCHES = 4096  # of 1,024 pixels
_WAN_PATCHES = 32_760  # of 81 frames of 480 x 832 pixels
_HUNYUAN_PATCHES = 118_800  # of 129 frames of 720 x 1,280 pixels


def dit(fields: Fields, name: str) -> ModelGraph:
    """Return a DiT: each block embeds time step and class by itself, and is scaled by them.

    Raises:
        UnsupportedModelError: if norms have weights, or blocks are scaled otherwise.
    """
    for field, usual in (("norm_type", "ada_norm_zero"), ("norm_elementwise_affine", None)):
        given = fields.text(field) if usual else None
        if given not in {None, usual} or (not usual and fields.flag(field, False)):
            raise _unread(fields, field, given or True)
    width, heads, size = _heads(fields, heads=16, size=72)
    classes = fields.size("num_embeds_ada_norm", 1000) + 1
    own = _mlp(_FREQUENCIES, width) + classes * width + _modulation(width, 6)
    bias = fields.flag("attention_bias", True)
    block = _block(heads, size, beside=own).model_copy(
        update={"attention": _attention(heads, size, bias=bias)}
    )
    patch, channels = fields.size("patch_size", 2), fields.size("in_channels", 4)
    side = fields.size("sample_size", 32) // patch
    columns = patch**2 * fields.size("out_channels", channels)
    return _graph(
        fields,
        name,
        [block] * layer_count(fields.filled({"num_layers": 28}), "num_layers"),
        products=(_product(patch**2 * channels, width),),
        columns=columns,
        tokens=side**2,
        said=f"a sequence is one picture of {side**2} patches",
    )


def flux(fields: Fields, name: str) -> ModelGraph:
    """Return a Flux: blocks with two sets of weights, then blocks with one, side by side."""
    width, heads, size = _heads(fields, heads=24, size=128)
    own = _attention(heads, size, normed=True)
    fields = fields.filled({"num_layers": 19, "num_single_layers": 38})
    blocks = [_double(own, width)] * layer_count(fields, "num_layers")
    blocks += [_single(own, width)] * layer_count(fields, "num_single_layers")
    channels = fields.size("in_channels", 64)
    guided = 1 + fields.flag("guidance_embeds", False)
    return _graph(
        fields,
        name,
        blocks,
        products=(
            _product(channels, width),
            _product(fields.size("joint_attention_dim", 4096), width, tokens=_FLUX_TEXT),
            *_rows(_FREQUENCIES, width) * guided,
            *_rows(fields.size("pooled_projection_dim", 768), width),
        ),
        columns=fields.size("patch_size", 1) ** 2 * fields.size("out_channels", channels),
        tokens=_FLUX_PATCHES + _FLUX_TEXT,
        said=f"a sequence is {_FLUX_TEXT} tokens of text and the patches of one picture",
    )


def sd3(fields: Fields, name: str) -> ModelGraph:
    """Return an SD3: two sets of weights, of which the last block needs no output for text.

    Some blocks (`dual_attention_layers`) have a second attention of patches alone.

    Raises:
        UnsupportedModelError: if queries and keys are normed otherwise than by their rms.
    """
    width, heads, size = _heads(fields, heads=18, size=64)
    normed = fields.text("qk_norm")
    if normed not in {None, "rms_norm"}:
        raise _unread(fields, "qk_norm", normed)
    own = _attention(heads, size, normed=normed is not None)
    count = layer_count(fields.filled({"num_layers": 18}), "num_layers")
    dual, last = fields.indices("dual_attention_layers"), count - 1
    blocks = [_double(own, width, last=i == last, dual=i in dual) for i in range(count)]
    patch, channels = fields.size("patch_size", 2), fields.size("in_channels", 16)
    patches = (fields.size("sample_size", 128) // patch) ** 2
    return _graph(
        fields,
        name,
        blocks,
        products=(
            _product(patch**2 * channels, width),
            _product(fields.size("joint_attention_dim", 4096), width, tokens=_SD3_TEXT),
            *_rows(_FREQUENCIES, width),
            *_rows(fields.size("pooled_projection_dim", 2048), width),
        ),
        columns=patch**2 * fields.size("out_channels", 16),
        tokens=patches + _SD3_TEXT,
        said=f"a sequence is {_SD3_TEXT} tokens of text and the patches of one picture",
    )


def wan(fields: Fields, name: str) -> ModelGraph:
    """Return a Wan: attention to patches of a video, another to text, whose scores are left out.

    Raises:
        UnsupportedModelError: if it reads pictures as well, as those that begin with one do.
    """
    for field in ("image_dim", "added_kv_proj_dim", "pos_embed_seq_len"):
        if fields.optional_size(field) is not None:
            raise _unread(fields, field, fields.optional_size(field))
    width, heads, size = _heads(fields, heads=40, size=128)
    normed = fields.text("qk_norm") if "qk_norm" in fields else "rms_norm_across_heads"
    if normed != "rms_norm_across_heads":
        raise _unread(fields, "qk_norm", normed)
    attention = _attention(heads, size, normed=True).model_copy(
        update={"query_key_norm_spans_heads": True}
    )
    affine = 2 * width if fields.flag("cross_attn_norm", True) else 0
    tables = 6 * width + 2 * (width + 1) * width + 2 * width + affine
    block = Block(
        attention=attention,
        feed_forward=DenseFeedForward(
            ffn_size=fields.size("ffn_dim", 13824), gated=False, bias=True
        ),
        norm=Norm.WEIGHTLESS,
        beside=Entry(products=(_product(width, width),) * 2, table_elements=tables),
    )
    patch = fields.counts("patch_size") or (1, 2, 2)
    volume = patch[0] * patch[1] * patch[2]
    frequencies = fields.size("freq_dim", _FREQUENCIES)
    return _graph(
        fields,
        name,
        [block] * layer_count(fields.filled({"num_layers": 40}), "num_layers"),
        products=(
            _product(volume * fields.size("in_channels", 16), width),
            *_rows(frequencies, width),
            _product(width, 6 * width, tokens=1),
            _product(fields.size("text_dim", 4096), width, tokens=_WAN_TEXT),
            _product(width, width, tokens=_WAN_TEXT),
        ),
        columns=volume * fields.size("out_channels", 16),
        tokens=_WAN_PATCHES,
        said="a sequence is the patches of one video; keys and values of its text, and scores of "
        "patches with them, are left out of the FLOPs",
        end_elements=2 * width,
    )


def hunyuan_video(fields: Fields, name: str) -> ModelGraph:
    """Return a HunyuanVideo: a tower that refines text, then blocks as Flux has them.

    Raises:
        UnsupportedModelError: if it is conditioned on a picture.
    """
    if fields.text("image_condition_type") is not None:
        raise _unread(fields, "image_condition_type", fields.text("image_condition_type"))
    width, heads, size = _heads(fields, heads=24, size=128)
    inner = int(width * fields.number("mlp_ratio", 4.0))
    own = _attention(heads, size, normed=True)
    fields = fields.filled({"num_layers": 20, "num_single_layers": 40, "num_refiner_layers": 2})
    blocks = [_double(own, width, inner=inner)] * layer_count(fields, "num_layers")
    blocks += [_single(own, width, inner=inner)] * layer_count(fields, "num_single_layers")
    text = fields.size("text_embed_dim", 4096)
    refiner = BlockRun(
        block=_block(heads, size, beside=_modulation(width, 2)).model_copy(
            update={"norm": Norm.LAYER, "feed_forward": _plain(inner)}
        ),
        block_count=layer_count(fields, "num_refiner_layers"),
        part=RunPart.ENCODER,
        tokens_per_sequence=_HUNYUAN_TEXT,
        entry=Entry(
            products=(
                _product(text, width, tokens=_HUNYUAN_TEXT),
                *_rows(_FREQUENCIES, width),
                *_rows(text, width),
            )
        ),
        exit=Exit(output_size=width, output_tokens_per_sequence=_HUNYUAN_TEXT),
    )
    patch = fields.size("patch_size_t", 1) * fields.size("patch_size", 2) ** 2
    guided = 1 + fields.flag("guidance_embeds", True)
    graph = _graph(
        fields,
        name,
        blocks,
        products=(
            _product(patch * fields.size("in_channels", 16), width),
            *_rows(_FREQUENCIES, width) * guided,
            *_rows(fields.size("pooled_projection_dim", 768), width),
        ),
        columns=patch * fields.size("out_channels", 16),
        tokens=_HUNYUAN_PATCHES + _HUNYUAN_TEXT,
        said=f"a sequence is {_HUNYUAN_TEXT} tokens of text and the patches of one video",
    )
    return ModelGraph(**{**dict(graph), "runs": (refiner, *graph.runs)})


READERS: Mapping[str, Callable[[Fields, str], ModelGraph]] = {
    "DiTTransformer2DModel": dit,
    "FluxTransformer2DModel": flux,
    "HunyuanVideoTransformer3DModel": hunyuan_video,
    "SD3Transformer2DModel": sd3,
    "WanTransformer3DModel": wan,
}


def class_names() -> tuple[str, ...]:
    """Return the values of `_class_name` that can be read, sorted."""
    return tuple(sorted(READERS))


def graph_from_diffusers(config: Mapping[str, Any], *, name: str) -> ModelGraph:
    """Return the graph of a transformer whose `_class_name` is one of `READERS`.

    Raises:
        DocumentError: if a field is missing or has a bad value.
    """
    fields, title = Fields(config), config["_class_name"]
    graph = READERS[title](fields, name)
    return with_unread(graph, config, fields.asked, title=f"{title}'s config.json")


def _graph(  # noqa: PLR0913  (what a model of these is)
    fields: Fields,
    name: str,
    blocks: list[Block],
    *,
    products: tuple[Product, ...],
    columns: int,
    tokens: int,
    said: str,
    end_elements: int | None = None,
) -> ModelGraph:
    """Return blocks between `products` and a head of `columns`, before which a row is scaled.

    The scale is a product of the conditioning row, or `end_elements` of a table.
    """
    width = products[0].outer_size
    first, *others = runs(blocks)
    end = _modulation(width, 2) if end_elements is None else end_elements
    return ModelGraph(
        name=name,
        architecture=fields.text("_class_name") or "diffusers",
        hidden_size=width,
        vocabulary_size=0,
        final_norm=Norm.WEIGHTLESS,
        head_bias=True,
        head_size=columns,
        before_head=Entry(table_elements=end),
        maximum_sequence_length=tokens,
        runs=(first.model_copy(update={"entry": Entry(products=products)}), *others),
        assumptions=(said, "what conditions blocks is one row a sequence, and no FLOPs"),
    )


def _heads(fields: Fields, *, heads: int, size: int) -> tuple[int, int, int]:
    """Return the width, the heads and their size."""
    count = fields.size("num_attention_heads", heads)
    each = fields.size("attention_head_dim", size)
    return count * each, count, each


def _attention(
    heads: int, size: int, *, normed: bool = False, bias: bool = True
) -> GroupedQueryAttention:
    return GroupedQueryAttention(
        head_count=heads,
        key_value_head_count=heads,
        head_size=size,
        query_key_value_bias=bias,
        output_bias=True,
        query_key_norm=normed,
        rotary=normed,
        causal=False,
    )


def _plain(inner: int) -> DenseFeedForward:
    return DenseFeedForward(ffn_size=inner, gated=False, bias=True)


def _block(heads: int, size: int, *, beside: int) -> Block:
    width = heads * size
    return Block(
        attention=_attention(heads, size),
        feed_forward=_plain(_WIDENED * width),
        norm=Norm.WEIGHTLESS,
        beside=Entry(table_elements=beside),
    )


def _double(
    attention: GroupedQueryAttention,
    width: int,
    *,
    inner: int | None = None,
    last: bool = False,
    dual: bool = False,
) -> Block:
    """Return a block with a second set of weights; the `last` needs of it no output."""
    ffn = inner or _WIDENED * width
    square, norms = (width + 1) * width, 2 * attention.head_size * attention.query_key_norm
    second = 3 * square + norms
    if not last:
        second += square + 2 * width * ffn + ffn + width
    scales = _modulation(width, 9 if dual else 6) + _modulation(width, 2 if last else 6)
    own = 4 * square + norms if dual else 0
    return Block(
        attention=attention,
        feed_forward=_plain(ffn),
        norm=Norm.WEIGHTLESS,
        second_set_elements=second + own,
        beside=Entry(table_elements=scales),
    )


def _single(attention: GroupedQueryAttention, width: int, *, inner: int | None = None) -> Block:
    """Return a block of one set, whose last product puts both halves together."""
    return Block(
        attention=attention.model_copy(update={"output_bias": False}),
        feed_forward=_plain(inner or _WIDENED * width),
        norm=Norm.WEIGHTLESS,
        norm_placement=NormPlacement.SHARED,
        beside=Entry(table_elements=_modulation(width, 3)),
    )


def _modulation(width: int, rows: int) -> int:
    """Return the weights of a product of the conditioning row that makes `rows` rows."""
    return (width + 1) * rows * width


def _mlp(inner: int, width: int) -> int:
    return (inner + 1) * width + (width + 1) * width


def _rows(inner: int, width: int) -> tuple[Product, ...]:
    """Return two products of one row a sequence."""
    return _product(inner, width, tokens=1), _product(width, width, tokens=1)


def _product(inner: int, outer: int, *, tokens: int | None = None) -> Product:
    return Product(inner_size=inner, outer_size=outer, bias=True, tokens_per_sequence=tokens)


def _unread(fields: Fields, name: str, value: object) -> UnsupportedModelError:
    return UnsupportedModelError(
        "cannot be priced",
        field=fields.spelling(name),
        value=value,
        remedy="trace the model with `meshwright trace FILE.py:FUNCTION`",
    )
