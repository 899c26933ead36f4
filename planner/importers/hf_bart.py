"""Encoder-decoders of Hugging Face after bart: bart, mbart, pegasus, marian and their kin.

Each type states where its class differs from bart's (`modeling_<type>.py` of transformers 5.23).
The job's sequence_length counts the decoder's tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.errors import UnsupportedModelError
from planner.importers.fields import POSITION_LIMIT, Fields
from planner.importers.hf_attention import BIASED, layer_count, multi_head
from planner.importers.hf_encoder import AS_LONG
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
    RunPart,
)

BART_ALIASES = {
    "hidden_size": "d_model",
    "num_attention_heads": "encoder_attention_heads",
    "num_hidden_layers": "encoder_layers",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """How a type differs from bart.

    `table` says where positions come from: a learned table of which `first_position` rows stay
    unused, angles that the class has as parameters, or angles that are none.
    """

    placement: NormPlacement = NormPlacement.AFTER
    embedding_norm: bool = True
    final_norm: bool = False
    table: bool = True
    first_position: int = 0
    positions: int = 1024


_BART = _Kind(first_position=2)
_BEFORE = NormPlacement.BEFORE
_KINDS = {
    "bart": _BART,
    "blenderbot": _Kind(placement=_BEFORE, embedding_norm=False, final_norm=True, positions=128),
    "blenderbot-small": _Kind(positions=512),
    "m2m_100": _Kind(placement=_BEFORE, embedding_norm=False, final_norm=True, table=False),
    "marian": _Kind(embedding_norm=False),
    "mbart": _Kind(placement=_BEFORE, final_norm=True, first_position=2),
    "mvp": _BART,
    "pegasus": _Kind(placement=_BEFORE, embedding_norm=False, final_norm=True),
    "plbart": _BART,
}
BART_KIN = tuple(_KINDS)


def bart_kin(fields: Fields, name: str) -> ModelGraph:
    """Return an encoder-decoder with biases everywhere, whose three embeddings are one.

    Raises:
        UnsupportedModelError: if both halves have their own vocabulary, or prompts are learned.
    """
    model_type = fields.text("model_type") or "bart"
    kind = _KINDS[model_type]
    _refuse_parts(fields)
    width = fields.size("d_model")
    positions = fields.size("max_position_embeddings", kind.positions, limit=POSITION_LIMIT)
    rows = positions + kind.first_position if kind.table else 0
    own = multi_head(fields, "decoder_attention_heads", "d_model").model_copy(update=BIASED)
    cross = CrossAttention(
        head_count=own.head_count,
        key_value_head_count=own.head_count,
        head_size=own.head_size,
        source_width=width,
        query_key_value_bias=True,
        output_bias=True,
    )
    encoder = Block(
        attention=multi_head(fields, "encoder_attention_heads", "d_model").model_copy(
            update={**BIASED, "causal": False}
        ),
        feed_forward=_plain(fields, "encoder_ffn_dim"),
        norm=Norm.LAYER,
        norm_placement=kind.placement,
    )
    decoder = Block(
        attention=own,
        feed_forward=_plain(fields, "decoder_ffn_dim"),
        norm=Norm.LAYER,
        norm_placement=kind.placement,
        cross_attention=cross,
    )
    norms = (width,) if kind.embedding_norm else ()
    return ModelGraph(
        name=name,
        architecture=model_type,
        hidden_size=width,
        vocabulary_size=fields.size("vocab_size"),
        tied_embeddings=fields.flag("tie_word_embeddings", True),
        learned_position_count=rows,
        final_norm=Norm.LAYER if kind.final_norm else None,
        maximum_sequence_length=positions,
        runs=(
            BlockRun(
                block=encoder,
                block_count=layer_count(fields, "encoder_layers"),
                part=RunPart.ENCODER,
                entry=Entry(norm_widths=norms, table_elements=rows * width),
                exit=Exit(norm_widths=(width,)) if kind.final_norm else None,
            ),
            BlockRun(
                block=decoder,
                block_count=layer_count(fields, "decoder_layers"),
                entry=Entry(norm_widths=norms) if norms else None,
            ),
        ),
        assumptions=(AS_LONG,),
    )


def _refuse_parts(fields: Fields) -> None:
    shared = fields.flag("share_encoder_decoder_embeddings", True)
    if not shared or fields.flag("use_prompt", False):
        field = "use_prompt" if shared else "share_encoder_decoder_embeddings"
        raise UnsupportedModelError(
            "learned prompts cannot be priced" if shared else "two vocabularies cannot be priced",
            field=fields.spelling(field),
            value=fields.flag(field, True),
            remedy="leave it out, or trace the model with `meshwright trace`",
        )


def _plain(fields: Fields, name: str) -> DenseFeedForward:
    return DenseFeedForward(ffn_size=fields.size(name), gated=False, bias=True)
