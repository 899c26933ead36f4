"""Vision-language models of Hugging Face whose text is a bert's: blip and git.

Each reader states the defaults of its configuration class (`configuration_<type>.py` of
transformers 5.23). A sequence is assumed to have one image.
"""

from __future__ import annotations

from planner.importers.fields import LAYER_LIMIT, POSITION_LIMIT, Fields
from planner.importers.hugging_face.attention import BIASED, layer_count, multi_head
from planner.importers.hugging_face.heads import told_head
from planner.importers.hugging_face.towers import (
    Tower,
    biased_block,
    clip_tower,
    joined,
    patch_count,
    patch_product,
)
from planner.schema.model import (
    Block,
    BlockRun,
    CrossAttention,
    DenseFeedForward,
    Entry,
    Exit,
    ModelGraph,
    Norm,
    NormPlacement,
    Product,
)

_VISION = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "patch_size": 16,
}
_BLIP_TEXT = {**_VISION, "num_attention_heads": 8, "vocab_size": 30524}


def blip(fields: Fields, name: str) -> ModelGraph:
    """Return a blip that writes captions: each block of its text reads the image across.

    Its other classes have an encoder of text in place of that, and are told.
    """
    vision = fields.section("vision_config", defaults={**_VISION, "image_size": 384})
    tower = blip_tower(vision, bias=True)
    text = fields.section("text_config", defaults=_BLIP_TEXT)
    own = _block(text, causal=text.flag("is_decoder", True))
    heads = multi_head(text)
    cross = CrossAttention(
        head_count=heads.head_count,
        key_value_head_count=heads.head_count,
        head_size=heads.head_size,
        source_width=tower.hidden_size,
        source_tokens_per_sequence=tower.token_count,
        query_key_value_bias=True,
        output_bias=True,
    )
    width = text.size("hidden_size")
    transform = Product(inner_size=width, outer_size=width, bias=True)
    plain = _bert(text, name, own)
    crossed = own.model_copy(update={"cross_attention": cross})
    graph = plain.model_copy(
        update={
            "before_head": Entry(products=(transform,), norm_widths=(width,)),
            "runs": (plain.runs[0].model_copy(update={"block": crossed}),),
        }
    )
    run = tower.run(Exit(norm_widths=(tower.hidden_size,)))
    whole = joined(
        fields,
        graph,
        run,
        image=f"{tower.image_pixels} pixels",
        tied=text.flag("tie_word_embeddings", True),
    )
    return told_head(whole, fields, own="ForConditionalGeneration")


def git(fields: Fields, name: str) -> ModelGraph:
    """Return a git: a CLIP tower's rows, mapped and normed, stand before those of the text."""
    tower = clip_tower(fields.section("vision_config", defaults=_VISION))
    width = fields.size("hidden_size")
    frames = fields.size("num_image_with_embedding", 0, minimum=0)
    exit_ = Exit(
        products=(
            Product(
                inner_size=tower.hidden_size,
                outer_size=width,
                bias=True,
                tokens_per_sequence=tower.token_count,
            ),
        ),
        norm_widths=(tower.hidden_size, width),
        table_elements=frames * tower.hidden_size,
        output_size=width,
        output_tokens_per_sequence=tower.token_count,
    )
    text = _bert(fields, name, _block(fields, causal=True), positions=1024)
    image = f"{tower.image_pixels} pixels"
    return joined(fields, text, tower.run(exit_), image=image)


def blip_tower(vision: Fields, *, bias: bool) -> Tower:
    """Return a tower with a class token and learned positions, without a norm before its blocks."""
    width = vision.size("hidden_size")
    pixels, patches = patch_count(vision, image=224, patch=14)
    tokens = patches + 1
    block = biased_block(vision)
    attention = block.attention.model_copy(update={"query_key_value_bias": bias})
    return Tower(
        block=block.model_copy(update={"attention": attention}),
        block_count=vision.size("num_hidden_layers", limit=LAYER_LIMIT),
        hidden_size=width,
        image_pixels=pixels,
        patch_count=patches,
        token_count=tokens,
        entry=Entry(
            products=(patch_product(vision, patch=14, patches=patches, bias=True),),
            table_elements=width + tokens * width,
        ),
    )


def _block(text: Fields, *, causal: bool) -> Block:
    return Block(
        attention=multi_head(text).model_copy(update={**BIASED, "causal": causal}),
        feed_forward=DenseFeedForward(
            ffn_size=text.size("intermediate_size"), gated=False, bias=True
        ),
        norm=Norm.LAYER,
        norm_placement=NormPlacement.AFTER,
    )


def _bert(text: Fields, name: str, block: Block, *, positions: int = 512) -> ModelGraph:
    """Return a bert's embeddings and blocks, and logits with a bias."""
    width = text.size("hidden_size")
    longest = text.size("max_position_embeddings", positions, limit=POSITION_LIMIT)
    entry = Entry(norm_widths=(width,))
    return ModelGraph(
        name=name,
        architecture=text.text("model_type") or "blip",
        hidden_size=width,
        vocabulary_size=text.size("vocab_size"),
        learned_position_count=longest,
        final_norm=None,
        head_bias=True,
        maximum_sequence_length=longest,
        runs=(BlockRun(block=block, block_count=layer_count(text), entry=entry),),
    )
