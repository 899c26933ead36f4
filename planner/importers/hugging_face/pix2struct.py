"""Models of Hugging Face that read pages in patches of any shape: pix2struct, kosmos-2 and 2.5.

Each reader states the defaults of its configuration class (`configuration_<type>.py` of
transformers 5.23). A sequence is assumed to have one image.
"""

from __future__ import annotations

from planner.errors import DocumentError
from planner.importers.fields import LAYER_LIMIT, POSITION_LIMIT, Fields
from planner.importers.hugging_face.attention import BIASED, layer_count, multi_head
from planner.importers.hugging_face.towers import clip_tower, joined
from planner.schema.model import (
    Block,
    BlockRun,
    CrossAttention,
    DenseFeedForward,
    Entry,
    Exit,
    GroupedQueryAttention,
    ModelGraph,
    NoFeedForward,
    Norm,
    Product,
    RunPart,
)

_PATCHES = 2048  # what its processor makes of a page unless told
_PIX2STRUCT_VISION = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}
_KOSMOS_VISION = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "patch_size": 14,
}
_KOSMOS_2_5_VISION = {"hidden_size": 1536, "num_hidden_layers": 18, "num_attention_heads": 24}
_KOSMOS_TEXT = {
    "embed_dim": 2048,
    "layers": 24,
    "ffn_dim": 8192,
    "attention_heads": 32,
    "vocab_size": 65037,
}
_KOSMOS_2_5_TEXT = {
    "embed_dim": 1536,
    "layers": 24,
    "ffn_dim": 6144,
    "attention_heads": 16,
    "vocab_size": 108_481,
    "max_position_embeddings": 4096,
}
_KOSMOS_ALIASES = {
    "num_attention_heads": "attention_heads",
    "hidden_size": "embed_dim",
    "num_hidden_layers": "layers",
}


def pix2struct(fields: Fields, name: str) -> ModelGraph:
    """Return a pix2struct: a gated T5 without biases by position in its encoder of patches.

    Raises:
        DocumentError: if its halves are not of one width.
    """
    vision = fields.section("vision_config", defaults=_PIX2STRUCT_VISION)
    text = fields.section("text_config")
    tower = _page_tower(
        vision,
        head_size=vision.size("d_kv", 64),
        ffn_size=vision.size("d_ff", 2048),
        rows=vision.size("seq_len", 4096, limit=POSITION_LIMIT),
        exit_=Exit(norm=Norm.RMS, norm_widths=(vision.size("hidden_size"),)),
    )
    graph = _text(text, name)
    plain = graph.runs[0].block
    own = _heads(text)
    if vision.size("hidden_size") != graph.hidden_size:
        raise DocumentError(
            f"must be the decoder's hidden_size {graph.hidden_size}, whose products read it",
            field=vision.spelling("hidden_size"),
            value=vision.size("hidden_size"),
            remedy="make both equal",
        )
    cross = CrossAttention(
        head_count=own.head_count,
        key_value_head_count=own.head_count,
        head_size=own.head_size,
        source_width=graph.hidden_size,
        source_tokens_per_sequence=_PATCHES,
    )
    crossed = plain.model_copy(update={"cross_attention": cross})
    graph = graph.model_copy(
        update={"runs": (graph.runs[0].model_copy(update={"block": crossed}),)}
    )
    return joined(fields, graph, tower, image=f"{_PATCHES} patches")


def _text(text: Fields, name: str) -> ModelGraph:
    """Return the decoder of a pix2struct, without what reads the page."""
    attention = _heads(text)
    block = Block(
        attention=attention,
        feed_forward=DenseFeedForward(ffn_size=text.size("d_ff", 2048)),
    )
    buckets = text.size("relative_attention_num_buckets", 32)
    return ModelGraph(
        name=name,
        architecture="pix2struct",
        hidden_size=text.size("hidden_size", 768),
        vocabulary_size=text.size("vocab_size", 50244),
        maximum_sequence_length=512,
        runs=(
            BlockRun(
                block=block,
                block_count=text.size("num_layers", 12, limit=LAYER_LIMIT),
                entry=Entry(table_elements=buckets * attention.head_count),
            ),
        ),
    )


def _heads(text: Fields) -> GroupedQueryAttention:
    """Return heads as wide as the model together, whatever `d_kv` says, as the class has them."""
    sizes = {"num_heads": 12, "hidden_size": 768}
    return multi_head(text.filled(sizes), "num_heads").model_copy(update={"rotary": False})


def kosmos_2(fields: Fields, name: str) -> ModelGraph:
    """Return a kosmos-2: norms before the last product of either part, 64 rows of an image."""
    tower = clip_tower(fields.section("vision_config", defaults=_KOSMOS_VISION))
    text = fields.section("text_config", aliases=_KOSMOS_ALIASES, defaults=_KOSMOS_TEXT)
    graph = _kosmos_text(text, name, inner_norm=True)
    count = fields.size("latent_query_num", 64)
    mapped = _mapped(tower.hidden_size, graph.hidden_size, tower.token_count, more=count)
    seen = tower.run(mapped.model_copy(update={"norm_widths": (tower.hidden_size,)}))
    queries = _kosmos_queries(text, count, source=tower.token_count + count)
    image = f"{tower.image_pixels} pixels"
    return joined(fields, graph, seen, queries, image=image, tied=True)


def kosmos_2_5(fields: Fields, name: str) -> ModelGraph:
    """Return a kosmos-2.5: a pix2struct's encoder of 4096 patches, 2048 rows of a page."""
    vision = fields.section("vision_config", defaults=_KOSMOS_2_5_VISION)
    text = fields.section("text_config", aliases=_KOSMOS_ALIASES, defaults=_KOSMOS_2_5_TEXT)
    graph = _kosmos_text(text, name, inner_norm=False)
    graph = graph.model_copy(
        update={
            "runs": (
                graph.runs[0].model_copy(
                    update={"entry": Entry(table_elements=2 * graph.hidden_size)}
                ),
            )
        }
    )
    count, width = fields.size("latent_query_num", 2048), vision.size("hidden_size")
    rows = vision.size("max_num_patches", 4096, limit=POSITION_LIMIT)
    mapped = _mapped(width, graph.hidden_size, rows, more=count)
    tower = _page_tower(
        vision,
        head_size=vision.size("head_dim", 64),
        ffn_size=vision.size("intermediate_size", 3968),
        rows=rows,
        patches=rows,
        exit_=mapped.model_copy(update={"norm": Norm.RMS, "norm_widths": (width,)}),
    )
    queries = _kosmos_queries(text, count, source=rows + count)
    return joined(fields, graph, tower, queries, image=f"{rows} patches", tied=True)


def _page_tower(
    vision: Fields,
    *,
    head_size: int,
    ffn_size: int,
    rows: int,
    exit_: Exit,
    patches: int = _PATCHES,
) -> BlockRun:
    """Return blocks of a gated T5 over patches, which have a table of rows and one of columns."""
    width, heads = vision.size("hidden_size"), vision.size("num_attention_heads")
    pixels = vision.size("patch_embed_hidden_size", 768)
    return BlockRun(
        block=Block(
            attention=GroupedQueryAttention(
                head_count=heads,
                key_value_head_count=heads,
                head_size=head_size,
                rotary=False,
                causal=False,
            ),
            feed_forward=DenseFeedForward(ffn_size=ffn_size),
        ),
        block_count=layer_count(vision),
        part=RunPart.ENCODER,
        hidden_size=width,
        tokens_per_sequence=patches,
        entry=Entry(
            products=(Product(inner_size=pixels, outer_size=width, bias=True),),
            table_elements=2 * rows * width,
        ),
        exit=exit_,
    )


def _kosmos_text(text: Fields, name: str, *, inner_norm: bool) -> ModelGraph:
    """Return a decoder with biases everywhere and angles for positions, tied."""
    width, ffn_size = text.size("embed_dim"), text.size("ffn_dim")
    attention = multi_head(text, "attention_heads", "embed_dim").model_copy(update=BIASED)
    longest = text.size("max_position_embeddings", 2048, limit=POSITION_LIMIT)
    block = Block(
        attention=attention,
        feed_forward=DenseFeedForward(ffn_size=ffn_size, gated=False, bias=True),
        norm=Norm.LAYER,
        beside=Entry(norm_widths=(width, ffn_size) if inner_norm else (ffn_size,)),
    )
    return ModelGraph(
        name=name,
        architecture="kosmos-2",
        hidden_size=width,
        vocabulary_size=text.size("vocab_size"),
        tied_embeddings=text.flag("tie_word_embeddings", True),
        final_norm=Norm.LAYER,
        maximum_sequence_length=longest,
        runs=(BlockRun(block=block, block_count=layer_count(text, "layers")),),
    )


def _mapped(width: int, output: int, tokens: int, *, more: int) -> Exit:
    """Return the product to the decoder's width, beside whose rows the queries are attended to."""
    product = Product(inner_size=width, outer_size=output, bias=True, tokens_per_sequence=tokens)
    return Exit(products=(product,), output_size=output, output_tokens_per_sequence=tokens + more)


def _kosmos_queries(text: Fields, count: int, *, source: int) -> BlockRun:
    """Return learned rows that attend once to `source` rows, without norms."""
    heads, width = multi_head(text, "attention_heads", "embed_dim"), text.size("embed_dim")
    return BlockRun(
        block=Block(
            attention=CrossAttention(
                head_count=heads.head_count,
                key_value_head_count=heads.head_count,
                head_size=heads.head_size,
                source_width=width,
                source_tokens_per_sequence=source,
                query_key_value_bias=True,
                output_bias=True,
            ),
            feed_forward=NoFeedForward(),
            norm=Norm.WEIGHTLESS,
        ),
        block_count=1,
        part=RunPart.ENCODER,
        hidden_size=width,
        tokens_per_sequence=count,
        entry=Entry(table_elements=count * width),
    )
