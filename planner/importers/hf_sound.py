"""Decoders of Hugging Face behind a whisper's encoder: qwen2_audio, voxtral and audioflamingo3.

A sequence is assumed to have 30 s of sound. Each reader states the defaults of its configuration
class (`configuration_<type>.py` of transformers 5.23).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from planner.errors import UnsupportedModelError
from planner.importers import hf_dense
from planner.importers.fields import LAYER_LIMIT, Fields
from planner.importers.hf_encoder import spectrum_entry, whisper_attention, whisper_feed_forward
from planner.schema.model import Block, BlockRun, Exit, ModelGraph, Norm, Product, RunPart

_POSITIONS = 1500
_POOLED = 2
_TEXT_READERS: Mapping[str, Callable[[Fields, str], ModelGraph]] = {
    "llama": hf_dense.llama,
    "mistral": hf_dense.mistral,
    "qwen2": hf_dense.qwen2,
    "qwen3": hf_dense.qwen3,
}
_ALIASES = {
    "hidden_size": "d_model",
    "intermediate_size": "encoder_ffn_dim",
    "num_attention_heads": "encoder_attention_heads",
    "num_hidden_layers": "encoder_layers",
}
_SIZES = {
    "d_model": 1280,
    "encoder_layers": 32,
    "encoder_attention_heads": 20,
    "encoder_ffn_dim": 5120,
    "num_mel_bins": 128,
}
_VOXTRAL_TEXT = {"head_dim": 128, "num_key_value_heads": 8, "max_position_embeddings": 131_072}


def qwen2_audio(fields: Fields, name: str) -> ModelGraph:
    """Return a qwen2_audio: neighbouring rows are averaged, one product."""
    text = _decoder(fields, name, default="qwen2")
    audio = audio_section(fields)
    tokens = audio.size("max_source_positions", _POSITIONS) // _POOLED
    product = _product(audio.size("d_model"), text.hidden_size, tokens, bias=True)
    return _model(fields, text, audio, (product,))


def voxtral(fields: Fields, name: str) -> ModelGraph:
    """Return a voxtral: four rows side by side are one, two products without biases."""
    text = _decoder(fields, name, default="llama", sizes=_VOXTRAL_TEXT)
    audio = audio_section(fields)
    rows, width = audio.size("max_source_positions", _POSITIONS), audio.size("d_model")
    inner = audio.size("encoder_ffn_dim")  # as wide as rows that its class puts side by side
    tokens = rows * width // inner
    products = _two(inner, text.hidden_size, tokens, bias=False)
    return _model(fields, text, audio, products)


def audioflamingo3(fields: Fields, name: str) -> ModelGraph:
    """Return an audioflamingo3: neighbouring rows are averaged, two products."""
    text = _decoder(fields, name, default="qwen2")
    audio = audio_section(fields)
    tokens = audio.size("max_source_positions", _POSITIONS) // _POOLED
    bias = fields.flag("projector_bias", True)
    products = _two(audio.size("d_model"), text.hidden_size, tokens, bias=bias)
    return _model(fields, text, audio, products)


def audio_section(fields: Fields) -> Fields:
    """Return the fields of `audio_config`, sizes left out being a large whisper's."""
    return fields.section("audio_config", aliases=_ALIASES).filled(_SIZES)


def _decoder(
    fields: Fields, name: str, *, default: str, sizes: Mapping[str, int] | None = None
) -> ModelGraph:
    """Return the decoder of `text_config`, of the type `default` unless it says otherwise.

    Raises:
        UnsupportedModelError: if its type cannot be read.
    """
    given = fields.section("text_config").text("model_type") or default
    reader = _TEXT_READERS.get(given)
    if reader is None:
        raise UnsupportedModelError(
            "is not a decoder that can be read behind an encoder of sound",
            field=f"{fields.spelling('text_config')}.model_type",
            value=given,
            remedy=f"known decoders are {', '.join(sorted(_TEXT_READERS))}; or trace the model "
            "with `meshwright trace --transformers config.json`",
        )
    defaults = {"model_type": given, **(sizes or {})}
    return reader(fields.section("text_config", defaults=defaults), name)


def sound_tower(
    audio: Fields,
    products: tuple[Product, ...],
    *,
    window: int | None = None,
    tables: int | None = None,
) -> BlockRun:
    """Return a whisper's encoder, whose rows go to the decoder by `products`.

    Its blocks see consecutive windows where `window` says how long; `tables` are what it has in
    place of learned positions.
    """
    width, rows = audio.size("d_model"), audio.size("max_source_positions", _POSITIONS)
    attention = whisper_attention(audio, "encoder_attention_heads").model_copy(
        update={"causal": False, "chunk_tokens": window}
    )
    entry = spectrum_entry(audio, width, rows)
    if tables is not None:
        entry = entry.model_copy(update={"table_elements": tables})
    return BlockRun(
        block=Block(
            attention=attention,
            feed_forward=whisper_feed_forward(audio, "encoder_ffn_dim"),
            norm=Norm.LAYER,
        ),
        block_count=audio.size("encoder_layers", limit=LAYER_LIMIT),
        part=RunPart.ENCODER,
        hidden_size=width,
        tokens_per_sequence=rows,
        entry=entry,
        exit=Exit(
            norm_widths=(width,),
            products=products,
            output_size=products[-1].outer_size,
            output_tokens_per_sequence=products[-1].tokens_per_sequence,
        ),
    )


def _model(
    fields: Fields, text: ModelGraph, audio: Fields, products: tuple[Product, ...]
) -> ModelGraph:
    """Return the encoder of sound before its decoder."""
    tokens = products[-1].tokens_per_sequence
    said = f"30 s of sound a sequence were assumed, {tokens} of its tokens"
    return ModelGraph(
        **{
            **dict(text),
            "architecture": fields.text("model_type") or text.architecture,
            "tied_embeddings": fields.flag("tie_word_embeddings", text.tied_embeddings),
            "runs": (sound_tower(audio, products), *text.runs),
            "assumptions": (*text.assumptions, said),
        }
    )


def _two(inner: int, outer: int, tokens: int, *, bias: bool) -> tuple[Product, ...]:
    return _product(inner, outer, tokens, bias=bias), _product(outer, outer, tokens, bias=bias)


def _product(inner: int, outer: int, tokens: int, *, bias: bool) -> Product:
    return Product(inner_size=inner, outer_size=outer, bias=bias, tokens_per_sequence=tokens)
