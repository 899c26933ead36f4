"""What leaving out the audio tower of Gemma-4 leaves out: its parameters.

Its layers are conformers, of two feed-forwards about an attention and a convolution, for which the
model graph has no block. Defaults are those of `configuration_gemma4.py` of transformers 5.23.
"""

from __future__ import annotations

from planner.errors import DocumentError
from planner.importers.fields import LAYER_LIMIT, Fields, require_divides

_KERNEL_ELEMENTS = 9  # two convolutions of 3 x 3 before the layers, each halving time and bins
_HALVED_TWICE = 4
_CHANNELS = (128, 32)
_SQUARES = 24  # two feed-forwards of 8, attention of 5 with that of positions, convolution of 3
_ROWS = 9  # norms: four of the feed-forwards, three of the layer, two of the convolution


def audio_parameter_count(fields: Fields, text_width: int) -> int:
    """Return the parameters of `audio_config`'s tower, and of its projection to the decoder.

    Raises:
        DocumentError: if a field is bad.
    """
    audio = fields.section("audio_config")
    width, heads = audio.size("hidden_size", 1024), audio.size("num_attention_heads", 8)
    require_divides(
        audio.spelling("num_attention_heads"), heads, audio.spelling("hidden_size"), width
    )
    layer = _SQUARES * width**2 + _ROWS * width + width // heads
    layer += width * audio.size("conv_kernel_size", 5)
    first, second = _channels(audio)
    entry = (_KERNEL_ELEMENTS + 1) * first + (_KERNEL_ELEMENTS * first + 1) * second
    entry += first // _HALVED_TWICE * second * width
    output = audio.size("output_proj_dims", 1536)
    layers = audio.size("num_hidden_layers", 12, limit=LAYER_LIMIT)
    return layers * layer + entry + (width + 1) * output + output * text_width


def _channels(audio: Fields) -> tuple[int, int]:
    """Return the channels of the two convolutions.

    Raises:
        DocumentError: if there are not two of them.
    """
    given = audio.counts("subsampling_conv_channels") or _CHANNELS
    if len(given) != len(_CHANNELS):
        raise DocumentError(
            "must name two numbers of channels",
            field=audio.spelling("subsampling_conv_channels"),
            value=f"{len(given)} entries",
            remedy="give two, or leave it out",
        )
    return given[0], given[1]
