"""Encoder of sound of Qwen3-Omni of Hugging Face, behind three convolutions over a spectrum.

Defaults are those of `configuration_qwen3_omni_moe.py` of transformers 5.23. A sequence is assumed
to have 30 s of sound.
"""

from __future__ import annotations

from planner.errors import DocumentError
from planner.importers.fields import LAYER_LIMIT, Fields
from planner.importers.hugging_face.attention import BIASED, multi_head
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

AUDIO_ALIASES = {
    "hidden_size": "d_model",
    "intermediate_size": "encoder_ffn_dim",
    "num_attention_heads": "encoder_attention_heads",
    "num_hidden_layers": "encoder_layers",
}

_FRAMES = 3000  # of 30 s
_KERNEL = 9  # of three by three
_CONVOLUTIONS = 3
_SIZES = {
    "d_model": 1280,
    "encoder_layers": 32,
    "encoder_attention_heads": 20,
    "encoder_ffn_dim": 5120,
}


def convolved_sound_tower(given: Fields, text: ModelGraph) -> BlockRun:
    """Return the encoder, whose blocks see windows of sound, and two products to the decoder.

    Raises:
        DocumentError: if it does not put out what the decoder takes.
    """
    audio = given.filled(_SIZES)
    width, output = audio.size("d_model"), audio.size("output_dim", 3584)
    if output != text.hidden_size:
        raise DocumentError(
            f"must be the decoder's hidden_size {text.hidden_size}",
            field=audio.spelling("output_dim"),
            value=output,
            remedy="make both equal",
        )
    frames = min(2 * audio.size("n_window", 50), _FRAMES)
    rows = max(_FRAMES // frames, 1) * _halved(frames)
    windows = max(audio.size("n_window_infer", 800) // frames, 1)
    attention = multi_head(audio, "encoder_attention_heads", "d_model").model_copy(
        update={**BIASED, "causal": False, "chunk_tokens": windows * _halved(frames)}
    )
    ways = ((width, width), (width, output))
    return BlockRun(
        block=Block(
            attention=attention,
            feed_forward=DenseFeedForward(
                ffn_size=audio.size("encoder_ffn_dim"), gated=False, bias=True
            ),
            norm=Norm.LAYER,
        ),
        block_count=audio.size("encoder_layers", limit=LAYER_LIMIT),
        part=RunPart.ENCODER,
        hidden_size=width,
        tokens_per_sequence=rows,
        entry=_entry(audio, rows),
        exit=Exit(
            norm_widths=(width,),
            products=tuple(
                Product(inner_size=a, outer_size=b, bias=True, tokens_per_sequence=rows)
                for a, b in ways
            ),
            output_size=output,
            output_tokens_per_sequence=rows,
        ),
    )


def _entry(audio: Fields, rows: int) -> Entry:
    """Return the convolutions, which halve bins and frames each, and the product of a column."""
    inner, bins = audio.size("downsample_hidden_size", 480), audio.size("num_mel_bins", 128)
    products = []
    for index in range(_CONVOLUTIONS):
        bins = (bins + 1) // 2
        columns = rows * 2 ** (_CONVOLUTIONS - 1 - index)
        products.append(
            Product(
                inner_size=_KERNEL * (inner if index else 1),
                outer_size=inner,
                bias=True,
                tokens_per_sequence=bins * columns,
            )
        )
    last = Product(inner_size=inner * bins, outer_size=audio.size("d_model"))
    return Entry(products=(*products, last))


def _halved(frames: int) -> int:
    for _ in range(_CONVOLUTIONS):
        frames = (frames + 1) // 2
    return max(frames, 1)
