"""Encoders of images of Hugging Face: vit and its kin, by themselves.

A sequence is one image, whose patches (and class and register tokens) are its tokens. Each reader
states the defaults of its configuration class (`configuration_<type>.py` of transformers 5.23).
"""

from __future__ import annotations

from planner.errors import UnsupportedModelError
from planner.importers.fields import Fields
from planner.importers.hugging_face.attention import layer_count, multi_head
from planner.importers.hugging_face.heads import with_image_head
from planner.importers.hugging_face.towers import (
    Tower,
    clip_tower,
    patch_count,
    patch_product,
    siglip_tower,
)
from planner.schema.model import (
    Block,
    BlockRun,
    DenseFeedForward,
    Entry,
    Exit,
    ModelGraph,
    Norm,
    Product,
    RunPart,
)

_SWIGLU_MULTIPLE = 8


def vit(fields: Fields, name: str) -> ModelGraph:
    """Return a vit: a class token, learned positions, a pooler in its base class alone."""
    return _vit(fields, name, tokens_beside=1)


def deit(fields: Fields, name: str) -> ModelGraph:
    """Return a deit: a vit with a second token, whose teacher's head is a class of its own."""
    return _vit(fields, name, tokens_beside=2)


def ijepa(fields: Fields, name: str) -> ModelGraph:
    """Return an ijepa: a vit without a class token or a pooler."""
    return _vit(fields, name, tokens_beside=0, pooled=False)


def vit_msn(fields: Fields, name: str) -> ModelGraph:
    """Return a vit_msn: a vit without a pooler."""
    return _vit(fields, name, tokens_beside=1, pooled=False)


def dinov2(fields: Fields, name: str) -> ModelGraph:
    """Return a dinov2: parts of blocks are scaled, a classifier reads token and mean."""
    return _dinov2(fields, name, patch=14, registers=0)


def dinov2_with_registers(fields: Fields, name: str) -> ModelGraph:
    """Return a dinov2_with_registers: further tokens that no patch makes."""
    registers = fields.size("num_register_tokens", 4, minimum=0)
    return _dinov2(fields, name, patch=16, registers=registers)


def dinov3_vit(fields: Fields, name: str) -> ModelGraph:
    """Return a dinov3_vit: rotary positions, registers, keys without biases.

    Raises:
        UnsupportedModelError: if queries and values differ in having biases.
    """
    if fields.flag("query_bias", True) is not fields.flag("value_bias", True):
        raise UnsupportedModelError(
            "must be what query_bias is",
            field=fields.spelling("value_bias"),
            value=fields.flag("value_bias", True),
            remedy="set both alike, or trace the model with `meshwright trace`",
        )
    width = fields.size("hidden_size")
    registers = fields.size("num_register_tokens", 0, minimum=0)
    attention = multi_head(fields).model_copy(
        update={
            "query_key_value_bias": fields.flag("query_bias", True),
            "key_bias": fields.flag("key_bias", False),
            "output_bias": fields.flag("proj_bias", True),
            "causal": False,
        }
    )
    feed_forward = DenseFeedForward(
        ffn_size=fields.size("intermediate_size"),
        gated=fields.flag("use_gated_mlp", False),
        bias=fields.flag("mlp_bias", True),
        scale_elements=2 * width,
    )
    block = Block(attention=attention, feed_forward=feed_forward, norm=Norm.LAYER)
    tables = (2 + registers) * width  # a class token, one that masks, registers
    graph = _graph(fields, name, block, patch=16, tokens_beside=1 + registers, tables=tables)
    return with_image_head(graph, fields, pooler_width=None)


def beit(fields: Fields, name: str) -> ModelGraph:
    """Return a beit: keys without biases, scaled parts, biases by relative position."""
    width, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    _, patches = patch_count(fields, image=224, patch=16)
    side = round(patches**0.5)
    biases = ((2 * side - 1) ** 2 + 3) * heads
    own = biases if fields.flag("use_relative_position_bias", False) else 0
    scaled = fields.number("layer_scale_init_value", 0.1) > 0
    block = _block(fields, bias=True, scale_elements=own + (2 * width if scaled else 0))
    block = block.model_copy(
        update={"attention": block.attention.model_copy(update={"key_bias": False})}
    )
    rows = 1 + fields.flag("use_mask_token", False)
    rows += patches + 1 if fields.flag("use_absolute_position_embeddings", False) else 0
    shared = biases if fields.flag("use_shared_relative_position_bias", False) else 0
    graph = _graph(fields, name, block, patch=16, tokens_beside=1, tables=rows * width + shared)
    return with_image_head(graph, fields, pooler_width=None)


def vit_mae(fields: Fields, name: str) -> ModelGraph:
    """Return a vit_mae: an encoder of the patches that are seen, a decoder of all of them.

    Raises:
        UnsupportedModelError: if a head is named that is not that of pre-training.
    """
    width, inner = fields.size("hidden_size"), fields.size("decoder_hidden_size", 512)
    pixels, patches = patch_count(fields, image=224, patch=16)
    seen = max(int(patches * (1 - fields.number("mask_ratio", 0.75))), 1)
    bias = fields.flag("qkv_bias", True)
    embedded = patch_product(fields, patch=16, patches=patches, bias=True)
    tower = BlockRun(
        block=_block(fields, bias=bias),
        block_count=layer_count(fields),
        part=RunPart.ENCODER,
        hidden_size=width,
        tokens_per_sequence=seen + 1,
        entry=Entry(products=(embedded,), table_elements=(patches + 2) * width),
        exit=Exit(
            norm_widths=(width,),
            products=(Product(inner_size=width, outer_size=inner, bias=True),),
            output_size=inner,
        ),
    )
    heads = fields.filled({"decoder_num_attention_heads": 16, "decoder_hidden_size": 512})
    attention = multi_head(heads, "decoder_num_attention_heads", "decoder_hidden_size")
    decoder = Block(
        attention=attention.model_copy(update=_seen_from_both_sides(bias)),
        feed_forward=DenseFeedForward(
            ffn_size=fields.size("decoder_intermediate_size", 2048), gated=False, bias=True
        ),
        norm=Norm.LAYER,
    )
    graph = ModelGraph(
        name=name,
        architecture="vit_mae",
        hidden_size=inner,
        vocabulary_size=0,
        final_norm=Norm.LAYER,
        head_bias=True,
        head_size=embedded.inner_size,
        maximum_sequence_length=patches + 1,
        runs=(
            tower,
            BlockRun(
                block=decoder,
                block_count=fields.size("decoder_num_hidden_layers", 8),
                entry=Entry(table_elements=(patches + 2) * inner),
            ),
        ),
        assumptions=(
            f"a sequence is one image of {pixels} pixels, of which {seen} patches are seen",
        ),
    )
    return with_image_head(graph, fields, pooler_width=None, own="ForPreTraining")


def clip_vision(fields: Fields, name: str) -> ModelGraph:
    """Return a CLIP vision tower by itself."""
    return _of_tower(fields, name, clip_tower(fields), projection=512)


def siglip_vision(fields: Fields, name: str) -> ModelGraph:
    """Return a SigLIP vision tower by itself, with the head that pools its rows."""
    return _of_tower(fields, name, siglip_tower(fields), projection=None)


def _vit(fields: Fields, name: str, *, tokens_beside: int, pooled: bool = True) -> ModelGraph:
    width = fields.size("hidden_size")
    _, patches = patch_count(fields, image=224, patch=16)
    rows = min(tokens_beside, 2) + patches + tokens_beside
    graph = _graph(
        fields,
        name,
        _block(fields, bias=fields.flag("qkv_bias", True)),
        patch=16,
        tokens_beside=tokens_beside,
        tables=rows * width,
    )
    pooler = fields.size("pooler_output_size", width) if pooled else None
    return with_image_head(graph, fields, pooler_width=pooler)


def _dinov2(fields: Fields, name: str, *, patch: int, registers: int) -> ModelGraph:
    width = fields.size("hidden_size")
    inner = int(width * fields.number("mlp_ratio", 4.0))
    gated = fields.flag("use_swiglu_ffn", False)
    if gated:
        inner = -(-int(inner * 2 / 3) // _SWIGLU_MULTIPLE) * _SWIGLU_MULTIPLE
    plain = _block(
        fields.filled({"intermediate_size": inner}),
        bias=fields.flag("qkv_bias", True),
        scale_elements=2 * width,
    )
    feed_forward = DenseFeedForward(
        ffn_size=inner, gated=gated, bias=True, scale_elements=2 * width
    )
    block = plain.model_copy(update={"feed_forward": feed_forward})
    _, patches = patch_count(fields, image=224, patch=patch)
    masks = 1 if registers else fields.flag("use_mask_token", True)
    rows = 1 + masks + registers + patches + 1
    graph = _graph(
        fields, name, block, patch=patch, tokens_beside=1 + registers, tables=rows * width
    )
    return with_image_head(graph, fields, pooler_width=None, read_widths=2)


def _block(fields: Fields, *, bias: bool, scale_elements: int = 0) -> Block:
    return Block(
        attention=multi_head(fields).model_copy(update=_seen_from_both_sides(bias)),
        feed_forward=DenseFeedForward(
            ffn_size=fields.size("intermediate_size"),
            gated=False,
            bias=True,
            scale_elements=scale_elements,
        ),
        norm=Norm.LAYER,
    )


def _seen_from_both_sides(bias: bool) -> dict[str, bool]:
    return {"query_key_value_bias": bias, "output_bias": True, "rotary": False, "causal": False}


def _graph(
    fields: Fields, name: str, block: Block, *, patch: int, tokens_beside: int, tables: int
) -> ModelGraph:
    """Return blocks behind a patch embedding and `tables`, without a head."""
    pixels, patches = patch_count(fields, image=224, patch=patch)
    product = patch_product(fields, patch=patch, patches=patches, bias=True)
    return _alone(
        fields,
        name,
        BlockRun(
            block=block,
            block_count=layer_count(fields),
            entry=Entry(products=(product,), table_elements=tables),
        ),
        pixels=pixels,
        tokens=patches + tokens_beside,
    )


def _alone(fields: Fields, name: str, run: BlockRun, *, pixels: int, tokens: int) -> ModelGraph:
    return ModelGraph(
        name=name,
        architecture=fields.text("model_type") or "vit",
        hidden_size=fields.size("hidden_size"),
        vocabulary_size=0,
        final_norm=Norm.LAYER,
        head_size=0,
        maximum_sequence_length=tokens,
        runs=(run,),
        assumptions=(f"a sequence is one image of {pixels} pixels, {tokens} tokens",),
    )


def _of_tower(fields: Fields, name: str, tower: Tower, *, projection: int | None) -> ModelGraph:
    """Return a tower by itself; `projection` is the default width that one of its classes makes."""
    run = BlockRun(block=tower.block, block_count=tower.block_count, entry=tower.entry)
    graph = _alone(fields, name, run, pixels=tower.image_pixels, tokens=tower.token_count)
    if tower.unread_elements:
        pooling = Entry(table_elements=tower.unread_elements)
        graph = graph.model_copy(update={"before_head": pooling})
    width = None if projection is None else fields.size("projection_dim", projection)
    return with_image_head(graph, fields, pooler_width=None, projection=width)
