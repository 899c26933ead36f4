"""Vision-language models of the Qwen family: qwen2_vl, qwen2_5_vl, qwen3_vl, qwen3_5, with experts.

Their towers have rotary positions and take images of any size, so that one is assumed. A merger
makes one token of a square of patches. Defaults are those of `configuration_<type>.py` of
transformers 5.23. Older files have the decoder's fields beside `vision_config`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

from planner.errors import DocumentError
from planner.importers.fields import LAYER_LIMIT, Fields, require_divides
from planner.importers.hugging_face import dense, llama_kin, mixture, parallel, qwen_linear
from planner.importers.hugging_face.convolved_sound import AUDIO_ALIASES, convolved_sound_tower
from planner.importers.hugging_face.sound import audio_section, sound_tower
from planner.importers.hugging_face.towers import joined
from planner.schema.model import (
    Block,
    BlockRun,
    DenseFeedForward,
    Entry,
    Exit,
    GroupedQueryAttention,
    ModelGraph,
    Norm,
    Product,
    RunPart,
)

_IMAGE_PIXELS = 448
_FULL_ATTENTION_BLOCKS = frozenset({7, 15, 23, 31})
_KEPT_BLOCKS = (8, 16, 24)
_QWEN3_OMNI_TEXT = {
    "model_type": "qwen3_omni_moe_text",
    "max_position_embeddings": 32768,
    "num_key_value_heads": 4,
    "moe_intermediate_size": 768,
    "num_experts_per_tok": 8,
    "num_experts": 128,
}
_QWEN3_VL_TEXT = {"model_type": "qwen3_vl_text", "max_position_embeddings": 128_000}
_QWEN3_VL_MOE_TEXT = {
    "model_type": "qwen3_vl_moe_text",
    "max_position_embeddings": 128_000,
    "num_key_value_heads": 16,
    "moe_intermediate_size": 1408,
    "num_experts_per_tok": 4,
}


def qwen2_vl(fields: Fields, name: str) -> ModelGraph:
    """Return a qwen2_vl: every block of its tower sees the whole image."""
    text = _decoder(fields, name)
    vision = _vision(fields)
    width = vision.size("embed_dim", 1280)
    block = Block(
        attention=_attention(vision, "embed_dim", width),
        feed_forward=DenseFeedForward(
            ffn_size=width * vision.size("mlp_ratio", 4), gated=False, bias=True
        ),
        norm=Norm.LAYER,
    )
    blocks = [block] * vision.size("depth", 32, limit=LAYER_LIMIT)
    return _model(fields, text, blocks, width=width, output_field="hidden_size")


def qwen2_5_vl(fields: Fields, name: str) -> ModelGraph:
    """Return a qwen2_5_vl: all but some blocks of its tower see one window of the image.

    Windows are counted whole, as in an image whose sides they divide.
    """
    text = _decoder(fields, name)
    width, blocks = _windowed_blocks(fields)
    return _model(fields, text, blocks, width=width, output_field="out_hidden_size")


def hyperclovax_vision_v2(fields: Fields, name: str) -> ModelGraph:
    """Return a hyperclovax_vision_v2: a qwen2_5_vl's tower, one product more, a hyperclovax."""
    text = llama_kin.hyperclovax(fields.section("text_config"), name)
    width, blocks = _windowed_blocks(fields)
    return _model(
        fields, text, blocks, width=width, output_field="out_hidden_size", mapped=True, tied=True
    )


def _windowed_blocks(fields: Fields) -> tuple[int, list[Block]]:
    """Return the width and the blocks of a tower most of which see one window of the image."""
    vision = _vision(fields)
    width = vision.size("hidden_size", 3584)
    attention = _attention(vision, "hidden_size", width)
    merge = vision.size("spatial_merge_size", 2)
    side = vision.size("window_size", 112) // (merge * vision.size("patch_size", 14)) * merge
    windowed = attention.model_copy(update={"chunk_tokens": max(side, 1) ** 2})
    feed_forward = DenseFeedForward(ffn_size=vision.size("intermediate_size", 3420), bias=True)
    absent = "fullatt_block_indexes" not in vision
    full = _FULL_ATTENTION_BLOCKS if absent else vision.indices("fullatt_block_indexes")
    blocks = [
        Block(attention=attention if index in full else windowed, feed_forward=feed_forward)
        for index in range(vision.size("depth", 32, limit=LAYER_LIMIT))
    ]
    return width, blocks


def qwen2_5_omni_thinker(fields: Fields, name: str) -> ModelGraph:
    """Return a qwen2_5_omni_thinker: an encoder of sound beside a qwen2_5_vl's tower.

    Its blocks see windows of sound, neighbouring rows are averaged, and positions are angles.

    Raises:
        DocumentError: if the encoder does not put out what the decoder takes.
    """
    graph = qwen2_5_vl(fields, name)
    audio = audio_section(fields)
    output = audio.size("output_dim", 3584)
    if output != graph.hidden_size:
        raise DocumentError(
            f"must be the decoder's hidden_size {graph.hidden_size}",
            field=audio.spelling("output_dim"),
            value=output,
            remedy="make both equal",
        )
    product = Product(
        inner_size=audio.size("d_model"),
        outer_size=output,
        bias=True,
        tokens_per_sequence=audio.size("max_source_positions", 1500) // 2,
    )
    tower = sound_tower(audio, (product,), window=audio.size("n_window", 100), tables=2 * output)
    said = "30 s of sound a sequence were assumed beside the image"
    return ModelGraph(
        **{
            **dict(graph),
            "tied_embeddings": fields.flag("tie_word_embeddings", False),
            "runs": (tower, *graph.runs),
            "assumptions": (*graph.assumptions, said),
        }
    )


def exaone4_5(fields: Fields, name: str) -> ModelGraph:
    """Return an exaone4_5: the tower of a qwen2_5_vl, with fewer keys, before an exaone4."""
    graph = qwen2_5_vl(fields, name)
    heads = _vision(fields).size("num_key_value_heads", 8)
    runs = []
    for run in graph.runs:
        attention = run.block.attention
        if run.part is RunPart.ENCODER and isinstance(attention, GroupedQueryAttention):
            require_divides(
                "vision_config.num_key_value_heads", heads, "num_heads", attention.head_count
            )
            fewer = attention.model_copy(update={"key_value_head_count": heads})
            block = run.block.model_copy(update={"attention": fewer})
            run = run.model_copy(update={"block": block})  # noqa: PLW2901
        runs.append(run)
    return graph.model_copy(update={"runs": tuple(runs)})


def qwen3_vl(fields: Fields, name: str) -> ModelGraph:
    """Return a qwen3_vl: what some blocks of its tower put out goes to the decoder as well.

    Each of them has a merger of its own, and its rows are added to those of the decoder's first
    layers, which is left out of what kernels move.
    """
    text = dense.qwen3(fields.section("text_config", defaults=_QWEN3_VL_TEXT), name)
    return _newer(fields, text, kept=_kept_blocks(fields))


def qwen3_vl_moe(fields: Fields, name: str) -> ModelGraph:
    """Return a qwen3_vl_moe: the same tower before a decoder whose layers route."""
    section = fields.section(
        "text_config", aliases=mixture.QWEN3_MOE_ALIASES, defaults=_QWEN3_VL_MOE_TEXT
    )
    text = mixture.qwen3_moe(section, name)
    return _newer(fields, text, kept=_kept_blocks(fields))


def cohere_compass(fields: Fields, name: str) -> ModelGraph:
    """Return a cohere_compass: the tower of a qwen3_vl before a cohere_compass_text."""
    text = parallel.cohere_compass_text(fields.section("text_config"), name)
    return _newer(fields, text, kept=_kept_blocks(fields))


def qwen3_omni_moe_thinker(fields: Fields, name: str) -> ModelGraph:
    """Return a qwen3_omni_moe_thinker: an encoder of sound beside a qwen3_vl_moe's tower."""
    section = fields.section(
        "text_config", aliases=mixture.QWEN3_MOE_ALIASES, defaults=_QWEN3_OMNI_TEXT
    )
    text = mixture.qwen3_moe(section, name)
    graph = _newer(fields, text, kept=_kept_blocks(fields))
    tower = convolved_sound_tower(fields.section("audio_config", aliases=AUDIO_ALIASES), text)
    said = "30 s of sound a sequence were assumed beside the image"
    return ModelGraph(
        **{
            **dict(graph),
            "runs": (tower, *graph.runs),
            "assumptions": (*graph.assumptions, said),
        }
    )


def _kept_blocks(fields: Fields) -> tuple[int, ...]:
    vision = _vision(fields)
    absent = "deepstack_visual_indexes" not in vision
    return _KEPT_BLOCKS if absent else vision.counts("deepstack_visual_indexes")


def qwen3_5(fields: Fields, name: str) -> ModelGraph:
    """Return a qwen3_5: a tower with a table of positions before its decoder."""
    return _qwen3_5(fields, name, qwen_linear.qwen3_5_text)


def qwen3_5_moe(fields: Fields, name: str) -> ModelGraph:
    """Return a qwen3_5_moe: the same tower before a decoder whose layers route."""
    return _qwen3_5(fields, name, qwen_linear.qwen3_5_moe_text)


def _qwen3_5(fields: Fields, name: str, decoder: Callable[[Fields, str], ModelGraph]) -> ModelGraph:
    """Return the tower and its decoder; without a `vision_config` the decoder alone."""
    model_type = fields.text("model_type") or "qwen3_5"
    text = decoder(fields.section("text_config", defaults={"model_type": model_type}), name)
    if not fields.is_mapping("vision_config"):
        tied = fields.flag("tie_word_embeddings", text.tied_embeddings)
        return text.model_copy(update={"architecture": model_type, "tied_embeddings": tied})
    return _newer(fields, text)


def _newer(fields: Fields, text: ModelGraph, *, kept: tuple[int, ...] = ()) -> ModelGraph:
    """Return the tower of the third generation before `text`; `kept` are blocks with a merger."""
    vision = _vision(fields)
    width = vision.size("hidden_size", 1152)
    block = Block(
        attention=_attention(vision, "hidden_size", width),
        feed_forward=DenseFeedForward(
            ffn_size=vision.size("intermediate_size", 4304), gated=False, bias=True
        ),
        norm=Norm.LAYER,
    )
    blocks = [block] * vision.size("depth", 27, limit=LAYER_LIMIT)
    return _model(fields, text, blocks, width=width, output_field="out_hidden_size", kept=kept)


def _decoder(fields: Fields, name: str) -> ModelGraph:
    if fields.text("model_type") == "exaone4_5":
        return llama_kin.exaone4(fields.section("text_config"), name)
    if "text_config" not in fields:
        return dense.qwen2_vl_text(fields, name)
    omni = fields.text("model_type") == "qwen2_5_omni_thinker"
    defaults = {"num_key_value_heads": 4} if omni else None
    return dense.qwen2_vl_text(fields.section("text_config", defaults=defaults), name)


def _vision(fields: Fields) -> Fields:
    return fields.section(
        "vision_config",
        aliases={"in_chans": "in_channels", "num_attention_heads": "num_heads"},
        defaults={"patch_size": 16} if _is_newer(fields) else None,
    )


def _is_newer(fields: Fields) -> bool:
    return (fields.text("model_type") or "").startswith(("qwen3", "cohere_compass"))


def _attention(vision: Fields, width_field: str, width: int) -> GroupedQueryAttention:
    heads = vision.size("num_heads", 16)
    require_divides(vision.spelling("num_heads"), heads, vision.spelling(width_field), width)
    return GroupedQueryAttention(
        head_count=heads,
        key_value_head_count=heads,
        head_size=width // heads,
        query_key_value_bias=True,
        output_bias=True,
        causal=False,
    )


def _model(  # noqa: PLR0913  (what a model is)
    fields: Fields,
    text: ModelGraph,
    blocks: list[Block],
    *,
    width: int,
    output_field: str,
    kept: tuple[int, ...] = (),
    mapped: bool = False,
    tied: bool = False,
) -> ModelGraph:
    """Return the tower before its decoder, in as many runs as its blocks alternate.

    What the blocks `kept` put out travels to its end, where each has a merger. With `mapped` a
    product leads from there to the decoder's width. `tied` is what that is unless told.

    Raises:
        DocumentError: if the tower does not put out what the decoder takes.
    """
    vision = _vision(fields)
    given = vision.size(output_field, 3584)
    if given != text.hidden_size and not mapped:
        raise DocumentError(
            f"must be the decoder's hidden_size {text.hidden_size}",
            field=vision.spelling(output_field),
            value=given,
            remedy="make both equal",
        )
    patches = max(_IMAGE_PIXELS // vision.size("patch_size", 14), 1) ** 2
    carried = [sum(before < index for before in kept) for index in range(len(blocks))]
    runs = [
        BlockRun(
            block=block,
            block_count=len(list(same)),
            part=RunPart.ENCODER,
            hidden_size=width,
            tokens_per_sequence=patches,
            carried_width=count * width,
        )
        for (block, count), same in groupby(zip(blocks, carried, strict=True))
    ]
    runs[0] = runs[0].model_copy(update={"entry": _entry(fields, width)})
    merger = _merger(
        vision, blocks[0].norm, width=width, patches=patches, output=given, kept_count=len(kept)
    )
    if mapped:
        merger = _mapped_merger(merger, given, text.hidden_size)
    runs[-1] = runs[-1].model_copy(update={"exit": merger})
    image = f"{_IMAGE_PIXELS} pixels ({patches} patches)"
    forwarded = not _is_newer(fields) and text.tied_embeddings
    return joined(fields, text, *runs, image=image, tied=tied, text_ties=forwarded)


def _mapped_merger(merger: Exit, inner: int, outer: int) -> Exit:
    """Return `merger` with a product after it that leads to a width of `outer`."""
    product = Product(
        inner_size=inner,
        outer_size=outer,
        bias=True,
        tokens_per_sequence=merger.output_tokens_per_sequence,
    )
    products = (*merger.products, product)
    return merger.model_copy(update={"products": products, "output_size": outer})


def _entry(fields: Fields, width: int) -> Entry:
    """Return the patch embedding, over the frames of `temporal_patch_size`.

    The third generation's has a bias, and a table of positions.
    """
    vision = _vision(fields)
    pixels = vision.size("in_channels", 3) * vision.size("temporal_patch_size", 2)
    patch = vision.size("patch_size", 14)
    newer = _is_newer(fields)
    product = Product(inner_size=pixels * patch**2, outer_size=width, bias=newer)
    positions = vision.size("num_position_embeddings", 2304) if newer else 0
    return Entry(products=(product,), table_elements=positions * width)


def _merger(
    vision: Fields, norm: Norm, *, width: int, patches: int, output: int, kept_count: int
) -> Exit:
    """Return the merger after the last block, and one for each that is kept, which norms merged."""
    merged = vision.size("spatial_merge_size", 2) ** 2
    tokens = max(patches // merged, 1)
    return Exit(
        products=tuple(
            Product(
                inner_size=merged * width, outer_size=outer, bias=True, tokens_per_sequence=tokens
            )
            for outer in (merged * width, output) * (1 + kept_count)
        ),
        norm=norm,
        norm_widths=(width, *(merged * width,) * kept_count),
        output_size=output,
        output_tokens_per_sequence=tokens,
    )
