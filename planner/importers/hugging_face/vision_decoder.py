"""Encoder of images before a decoder that reads it across, of Hugging Face's pairs of two models.

The encoder is of any type that is read, the decoder a trocr; its attention is that of
`modeling_trocr.py` of transformers 5.23.
"""

from __future__ import annotations

from planner.errors import UnsupportedModelError
from planner.importers.fields import Fields
from planner.importers.hugging_face.bart import TROCR_ALIASES, trocr_behind
from planner.schema.model import BlockRun, Entry, Exit, ModelGraph, Product, RunPart

_DECODER = "trocr"


def vision_encoder_decoder(fields: Fields, name: str) -> ModelGraph:
    """Return a vision-encoder-decoder: an encoder of images, a product where widths differ.

    Raises:
        UnsupportedModelError: if either half is of a type that is not read here.
    """
    encoder = _encoder(fields, name)
    decoder = fields.section("decoder", aliases=TROCR_ALIASES)
    if decoder.text("model_type") != _DECODER:
        raise _unread(fields, "decoder", decoder, _DECODER)
    width = decoder.size("d_model")
    named = decoder.optional_size("cross_attention_hidden_size") is not None
    tower = _tower(encoder, output=None if named or encoder.hidden_size == width else width)
    graph = trocr_behind(decoder, name, tower, encoder.assumptions)
    return graph.model_copy(update={"architecture": "vision-encoder-decoder"})


def _encoder(fields: Fields, name: str) -> ModelGraph:
    """Return the encoder by itself, with what its base class has.

    Raises:
        UnsupportedModelError: if its type is not one of images that is read.
    """
    from planner.importers.hugging_face.readers import READERS  # noqa: PLC0415  (they name who asks here)

    section = fields.section("encoder")
    reader = READERS.get(section.text("model_type") or "")
    if reader is None or not reader.reads_head:
        raise _unread(fields, "encoder", section, "vit, deit, beit or dinov2")
    graph = reader.read(section.replaced({"architectures": None}), name)
    if graph.vocabulary_size:
        raise _unread(fields, "encoder", section, "vit, deit, beit or dinov2")
    return graph


def _tower(encoder: ModelGraph, *, output: int | None) -> tuple[BlockRun, ...]:
    """Return the encoder's runs as a tower, which ends in its norm, pooler and `output`."""
    width, tokens = encoder.hidden_size, encoder.maximum_sequence_length
    after = encoder.before_head or Entry()
    across = () if output is None else (Product(inner_size=width, outer_size=output, bias=True),)
    runs = [
        run.model_copy(
            update={
                "part": RunPart.ENCODER,
                "hidden_size": width,
                "tokens_per_sequence": tokens,
            }
        )
        for run in encoder.runs
    ]
    end = Exit(
        norm_widths=() if encoder.final_norm is None else (width,),
        products=(*after.products, *across),
        table_elements=after.table_elements,
        output_size=output,
    )
    runs[-1] = runs[-1].model_copy(update={"exit": end})
    return tuple(runs)


def _unread(fields: Fields, half: str, section: Fields, known: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"is not {half} of a pair that can be read",
        field=f"{fields.spelling(half)}.model_type",
        value=section.text("model_type"),
        remedy=f"{known} can be; or trace the model with "
        "`meshwright trace --transformers config.json`",
    )
