"""Vision towers of Hugging Face, and how they are joined to decoders.

Each reader states the defaults of its configuration class (`configuration_<type>.py` of
transformers 5.23).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

from planner.errors import DocumentError
from planner.importers.fields import LAYER_LIMIT, Fields, require_at_most
from planner.importers.hugging_face.attention import multi_head
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

IMAGE_LIMIT = 2**14


@dataclass(frozen=True, slots=True, kw_only=True)
class Tower:
    """A vision transformer without what follows it.

    `token_count` is the patches and a class token where there is one; `unread_elements` are
    parameters that it has and no decoder reads.
    """

    block: Block
    block_count: int
    hidden_size: int
    image_pixels: int
    patch_count: int
    token_count: int
    entry: Entry
    unread_elements: int = 0

    def run(self, exit_: Exit) -> BlockRun:
        """Return the tower as the first run of a model, ending in `exit_`."""
        return BlockRun(
            block=self.block,
            block_count=self.block_count,
            part=RunPart.ENCODER,
            hidden_size=self.hidden_size,
            tokens_per_sequence=self.token_count,
            entry=self.entry,
            exit=exit_,
        )


def clip_tower(fields: Fields) -> Tower:
    """Return a CLIP vision tower, whose positions are learned."""
    return class_token_tower(fields, rotary=False)


def class_token_tower(fields: Fields, *, rotary: bool) -> Tower:
    """Return a tower with a class token beside the patches and a norm before the blocks."""
    width = fields.size("hidden_size")
    pixels, patches = patch_count(fields, image=224, patch=32)
    tokens = patches + 1
    return Tower(
        block=biased_block(fields, rotary=rotary),
        block_count=fields.size("num_hidden_layers", limit=LAYER_LIMIT),
        hidden_size=width,
        image_pixels=pixels,
        patch_count=patches,
        token_count=tokens,
        entry=Entry(
            products=(patch_product(fields, patch=32, patches=patches, bias=False),),
            norm_widths=(width,),
            table_elements=width + tokens * width,
        ),
    )


def siglip_tower(fields: Fields) -> Tower:
    """Return a SigLIP vision tower; its pooling head, where it has one, is read by no decoder."""
    width = fields.size("hidden_size")
    pixels, patches = patch_count(fields, image=224, patch=16)
    pooled = 0
    if fields.flag("vision_use_head", True):
        ffn_size = fields.size("intermediate_size")
        attention = 4 * (width + 1) * width
        pooled = width + attention + 2 * width + (2 * width + 1) * ffn_size + width
    return Tower(
        block=biased_block(fields),
        block_count=fields.size("num_hidden_layers", limit=LAYER_LIMIT),
        hidden_size=width,
        image_pixels=pixels,
        patch_count=patches,
        token_count=patches,
        entry=Entry(
            products=(patch_product(fields, patch=16, patches=patches, bias=True),),
            table_elements=patches * width,
        ),
        unread_elements=pooled,
    )


def siglip2_tower(fields: Fields) -> Tower:
    """Return a SigLIP 2 tower, whose images are any shape of `num_patches`: here a square."""
    side = isqrt(fields.size("num_patches", 256)) * fields.size("patch_size", 16)
    return siglip_tower(fields.replaced({"image_size": side}))


def biased_block(fields: Fields, *, rotary: bool = False) -> Block:
    """Return a block that sees all patches, with biases everywhere."""
    return Block(
        attention=multi_head(fields).model_copy(
            update={
                "query_key_value_bias": True,
                "output_bias": True,
                "rotary": rotary,
                "causal": False,
            }
        ),
        feed_forward=DenseFeedForward(
            ffn_size=fields.size("intermediate_size"), gated=False, bias=True
        ),
        norm=Norm.LAYER,
    )


def patch_count(fields: Fields, *, image: int, patch: int) -> tuple[int, int]:
    """Return the side of an image in pixels and how many whole patches it has.

    Raises:
        DocumentError: if a patch is larger than the image.
    """
    pixels, side = (
        side_pixels(fields, "image_size", image),
        side_pixels(fields, "patch_size", patch),
    )
    require_at_most(
        fields.spelling("patch_size"),
        side,
        limit_name=fields.spelling("image_size"),
        limit=pixels,
    )
    return pixels, (pixels // side) ** 2


def patch_product(fields: Fields, *, patch: int, patches: int, bias: bool) -> Product:
    """Return the patch embedding, a convolution whose stride is its width."""
    side = side_pixels(fields, "patch_size", patch)
    return Product(
        inner_size=fields.size("num_channels", 3) * side * side,
        outer_size=fields.size("hidden_size"),
        bias=bias,
        tokens_per_sequence=patches,
    )


def joined(
    fields: Fields,
    text: ModelGraph,
    *tower: BlockRun,
    image: str,
    tied: bool = False,
    text_ties: bool = False,
) -> ModelGraph:
    """Return the tower before its decoder, tied as the outer `tie_word_embeddings` has it.

    `tied` is what that is where it is absent. What the decoder says of itself is nothing to most
    classes; those that take it from there pass it on as `text_ties`.
    """
    outer = fields.flag("tie_word_embeddings", tied)
    output, _ = tower[-1].output(text.hidden_size)
    said = f"one image of {image} a sequence was assumed, {output} of its tokens"
    return ModelGraph(
        **{
            **dict(text),
            "architecture": fields.text("model_type") or text.architecture,
            "tied_embeddings": outer or text_ties,
            "runs": (*tower, *text.runs),
            "assumptions": (*text.assumptions, said),
        }
    )


def side_pixels(fields: Fields, name: str, default: int) -> int:
    """Return the side in pixels, which may be written for both directions.

    Raises:
        DocumentError: if the two differ.
    """
    if not fields.is_list(name):
        return fields.size(name, default, limit=IMAGE_LIMIT)
    given = fields.counts(name)
    if len(given) != 2 or given[0] != given[1] or not 1 <= given[0] <= IMAGE_LIMIT:
        raise DocumentError(
            f"must be two equal sides of 1 to {IMAGE_LIMIT} pixels",
            field=fields.spelling(name),
            value=list(given[:4]),
            remedy=f"write {default}",
        )
    return given[0]
