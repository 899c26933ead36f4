"""Phi-4-multimodal of Hugging Face: a phi3 behind an encoder of images and a conformer of sound.

A conformer's block has two feed-forwards around attention and a convolution; all but attention and
the last feed-forward stand in `beside`. A sequence is assumed to have one image and 30 s of sound.
Defaults are those of `configuration_phi4_multimodal.py` of transformers 5.23.
"""

from __future__ import annotations

from planner.errors import DocumentError
from planner.importers.fields import LAYER_LIMIT, Fields
from planner.importers.hugging_face.attention import BIASED, multi_head
from planner.importers.hugging_face.dense import phi3
from planner.importers.hugging_face.towers import siglip_tower
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

_TEXT = {"num_key_value_heads": 8, "max_position_embeddings": 131_072}
_VISION = {
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
    "image_size": 448,
    "patch_size": 14,
}
_AUDIO = {"hidden_size": 1024, "intermediate_size": 1536, "num_blocks": 24}
_FRAMES = 3000  # of 30 s
_TAPS = 9  # of three by three


def phi4_multimodal(fields: Fields, name: str) -> ModelGraph:
    """Return a phi4_multimodal; of its two ways from sound to the decoder one is used."""
    text = phi3(fields.filled(_TEXT), name)
    vision = fields.section("vision_config") if fields.is_mapping("vision_config") else Fields({})
    audio = fields.section("audio_config") if fields.is_mapping("audio_config") else Fields({})
    seen, pixels = _image_run(vision.filled(_VISION), text.hidden_size)
    heard = _sound_run(audio.filled(_AUDIO), text.hidden_size)
    image_tokens, sound_tokens = (run.output(text.hidden_size)[0] for run in (seen, heard))
    said = (
        f"one image of {pixels} x {pixels} pixels a sequence was assumed, {image_tokens} of its "
        f"tokens, and 30 s of sound, {sound_tokens} of its tokens"
    )
    return ModelGraph(
        **{
            **dict(text),
            "architecture": "phi4_multimodal",
            "runs": (seen, heard, *text.runs),
            "assumptions": (*text.assumptions, said),
        }
    )


def _image_run(vision: Fields, output: int) -> tuple[BlockRun, int]:
    """Return the encoder of an image, whose patches are averaged by fours, and its side."""
    tower = siglip_tower(vision)
    width, side = tower.hidden_size, round(tower.patch_count**0.5)
    tokens = (-(-side // 2)) ** 2
    end = Exit(
        norm_widths=(width,),
        products=_up_and_down(width, output, tokens),
        table_elements=tower.unread_elements + 2 * width,  # what stands between rows and images
        output_size=output,
        output_tokens_per_sequence=tokens,
    )
    return tower.run(end), tower.image_pixels


def _sound_run(audio: Fields, output: int) -> BlockRun:
    """Return the conformer of 30 s of sound."""
    width, heads = audio.size("hidden_size"), audio.size("num_attention_heads", 16)
    halvings = _halvings(audio)
    rows = max(_FRAMES >> halvings, 1)
    buckets = audio.size("bias_max_distance", 1000)
    buckets *= 1 if audio.flag("bias_symmetric", False) else 2
    inner = width * audio.size("downsample_rate", 1)
    way = _up_and_down(inner, output, rows)
    idle = sum((one.inner_size + 1) * one.outer_size for one in way)
    return BlockRun(
        block=_conformer(audio.filled({"num_attention_heads": heads})),
        block_count=audio.size("num_blocks", limit=LAYER_LIMIT),
        part=RunPart.ENCODER,
        hidden_size=width,
        tokens_per_sequence=rows,
        entry=_convolutions(audio, halvings, table=buckets * heads),
        exit=Exit(
            products=way,
            table_elements=idle,
            output_size=output,
            output_tokens_per_sequence=rows,
        ),
    )


def _halvings(audio: Fields) -> int:
    """Return how often time is halved.

    Raises:
        DocumentError: if `time_reduction` is no power of two from 2.
    """
    times = audio.size("time_reduction", 8)
    if times < 2 or times & (times - 1):
        raise DocumentError(
            "must be a power of two from 2",
            field=audio.spelling("time_reduction"),
            value=times,
            remedy="use 8",
        )
    return times.bit_length() - 1


def _convolutions(audio: Fields, halvings: int, *, table: int) -> Entry:
    """Return what halves bins and time: one convolution of both, then channels apart and across."""
    channels, bins = audio.size("nemo_conv_channels", 1024), audio.size("input_size", 80)
    frames, products = _FRAMES, []
    for index in range(halvings):
        bins, frames = (bins + 1) // 2, -(-frames // 2)
        tokens = bins * frames
        apart = Product(
            inner_size=_TAPS, outer_size=channels, bias=True, tokens_per_sequence=tokens
        )
        products.append(apart)
        if index:
            products.append(apart.model_copy(update={"inner_size": channels}))
    last = Product(inner_size=channels * bins, outer_size=audio.size("hidden_size"), bias=True)
    return Entry(products=(*products, last), table_elements=table)


def _conformer(audio: Fields) -> Block:
    width, inner = audio.size("hidden_size"), audio.size("intermediate_size")
    outer = audio.size("ext_pw_out_channel", 1024)
    channels = width * audio.size("depthwise_multiplier", 1)
    convolved = audio.size("depthwise_separable_out_channel", 1024)
    ways = (
        (width, 2 * inner),
        (inner, width),
        (width, 2 * outer),
        (audio.size("kernel_size", 3), channels),  # each channel apart
        (channels, convolved),
        (width, outer),
    )
    return Block(
        attention=multi_head(audio).model_copy(update={**BIASED, "causal": False}),
        feed_forward=DenseFeedForward(ffn_size=inner, bias=True),
        norm=Norm.LAYER,
        beside=Entry(
            products=tuple(Product(inner_size=a, outer_size=b, bias=True) for a, b in ways),
            norm_widths=(width,) * 3,
            table_elements=2 * outer,
        ),
    )


def _up_and_down(inner: int, output: int, tokens: int) -> tuple[Product, Product]:
    first, second = (
        Product(inner_size=a, outer_size=output, bias=True, tokens_per_sequence=tokens)
        for a in (inner, output)
    )
    return first, second
