"""Decoders of Hugging Face behind a whisper's encoder of sound.

audioflamingo3 and musicflamingo, glmasr, moss_transcribe_diarize, qwen2_audio and voxtral.

A sequence is assumed to have 30 s of sound. Each reader states the defaults of its configuration
class (`configuration_<type>.py` of transformers 5.23).
"""

from __future__ import annotations

from planner.errors import DocumentError
from planner.importers.fields import LAYER_LIMIT, Fields
from planner.importers.hugging_face.encoder import (
    spectrum_entry,
    whisper_attention,
    whisper_feed_forward,
)
from planner.importers.hugging_face.text import text_decoder
from planner.schema.model import Block, BlockRun, Exit, ModelGraph, Norm, Product, RunPart

_POSITIONS = 1500
_POOLED = 2
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
_GLMASR_TEXT = {
    "vocab_size": 59264,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "max_position_embeddings": 8192,
}
_MOSS_TEXT = {
    "vocab_size": 151_936,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
}
_MOSS_AUDIO = {
    "d_model": 1024,
    "encoder_layers": 24,
    "encoder_attention_heads": 16,
    "encoder_ffn_dim": 4096,
    "num_mel_bins": 80,
}
_VOXTRAL_TEXT = {"head_dim": 128, "num_key_value_heads": 8, "max_position_embeddings": 131_072}


def qwen2_audio(fields: Fields, name: str) -> ModelGraph:
    """Return a qwen2_audio: neighbouring rows are averaged, one product."""
    text = text_decoder(fields, name, default="qwen2")
    audio = audio_section(fields)
    tokens = audio.size("max_source_positions", _POSITIONS) // _POOLED
    product = _product(audio.size("d_model"), text.hidden_size, tokens, bias=True)
    return _model(fields, text, audio, (product,))


def voxtral(fields: Fields, name: str) -> ModelGraph:
    """Return a voxtral: four rows side by side are one, two products without biases."""
    text = text_decoder(fields, name, defaults=_VOXTRAL_TEXT)
    audio = audio_section(fields)
    rows, width = audio.size("max_source_positions", _POSITIONS), audio.size("d_model")
    inner = audio.size("encoder_ffn_dim")  # as wide as rows that its class puts side by side
    tokens = rows * width // inner
    products = _two(inner, text.hidden_size, tokens, bias=False)
    return _model(fields, text, audio, products)


def audioflamingo3(fields: Fields, name: str) -> ModelGraph:
    """Return an audioflamingo3: neighbouring rows are averaged, two products."""
    text = text_decoder(fields, name, default="qwen2")
    audio = audio_section(fields)
    tokens = audio.size("max_source_positions", _POSITIONS) // _POOLED
    bias = fields.flag("projector_bias", True)
    products = _two(audio.size("d_model"), text.hidden_size, tokens, bias=bias)
    return _model(fields, text, audio, products)


def glmasr(fields: Fields, name: str) -> ModelGraph:
    """Return a glmasr: angles for positions, four rows side by side are one, two products."""
    text = text_decoder(fields, name, defaults=_GLMASR_TEXT)
    given = fields.section("audio_config", aliases=_ALIASES)
    _refuse_fewer_keys(given)
    rows = given.size("max_position_embeddings", _POSITIONS)
    audio = given.filled({**_SIZES, "max_source_positions": rows})
    inner = audio.size("encoder_ffn_dim")  # as wide as rows that its class puts side by side
    tokens = max(rows * audio.size("d_model") // inner, 1)
    products = (
        _product(inner, 2 * text.hidden_size, tokens, bias=True),
        _product(2 * text.hidden_size, text.hidden_size, tokens, bias=True),
    )
    return _model(fields, text, audio, products, tables=0, tied=True)


def moss_transcribe_diarize(fields: Fields, name: str) -> ModelGraph:
    """Return a moss_transcribe_diarize: some rows side by side are one, two products, a norm."""
    text = text_decoder(fields, name, default="qwen3", defaults=_MOSS_TEXT)
    audio = fields.section("audio_config", aliases=_ALIASES).filled(_MOSS_AUDIO)
    merge = fields.size("audio_merge_size", 4)
    tokens = max(audio.size("max_source_positions", _POSITIONS) // merge, 1)
    bias = fields.flag("projector_bias", True)
    products = _two(merge * audio.size("d_model"), text.hidden_size, tokens, bias=bias)
    return _model(fields, text, audio, products, tied=True, more=2 * text.hidden_size)


def _refuse_fewer_keys(audio: Fields) -> None:
    heads = audio.size("encoder_attention_heads", 20)
    keys = audio.size("num_key_value_heads", heads)
    if keys != heads:
        raise DocumentError(
            f"must be the {heads} heads of the encoder",
            field=audio.spelling("num_key_value_heads"),
            value=keys,
            remedy="leave it out, or trace the model with `meshwright trace`",
        )


def audio_section(fields: Fields) -> Fields:
    """Return the fields of `audio_config`, sizes left out being a large whisper's."""
    return fields.section("audio_config", aliases=_ALIASES).filled(_SIZES)


def sound_tower(
    audio: Fields,
    products: tuple[Product, ...],
    *,
    window: int | None = None,
    tables: int | None = None,
    more: int = 0,
) -> BlockRun:
    """Return a whisper's encoder, whose rows go to the decoder by `products`.

    Its blocks see consecutive windows where `window` says how long; `tables` are what it has in
    place of learned positions, `more` what the way to the decoder has beside products.
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
            table_elements=more,
            output_size=products[-1].outer_size,
            output_tokens_per_sequence=products[-1].tokens_per_sequence,
        ),
    )


def _model(  # noqa: PLR0913  (what a model is)
    fields: Fields,
    text: ModelGraph,
    audio: Fields,
    products: tuple[Product, ...],
    *,
    tables: int | None = None,
    tied: bool | None = None,
    more: int = 0,
) -> ModelGraph:
    """Return the encoder of sound before its decoder; `more` counts weights of the way between."""
    tower = sound_tower(audio, products, tables=tables, more=more)
    tokens = products[-1].tokens_per_sequence
    said = f"30 s of sound a sequence were assumed, {tokens} of its tokens"
    return ModelGraph(
        **{
            **dict(text),
            "architecture": fields.text("model_type") or text.architecture,
            "tied_embeddings": fields.flag(
                "tie_word_embeddings", text.tied_embeddings if tied is None else tied
            ),
            "runs": (tower, *text.runs),
            "assumptions": (*text.assumptions, said),
        }
    )


def _two(inner: int, outer: int, tokens: int, *, bias: bool) -> tuple[Product, ...]:
    return _product(inner, outer, tokens, bias=bias), _product(outer, outer, tokens, bias=bias)


def _product(inner: int, outer: int, tokens: int, *, bias: bool) -> Product:
    return Product(inner_size=inner, outer_size=outer, bias=bias, tokens_per_sequence=tokens)
