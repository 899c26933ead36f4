"""Encoder-decoders of Hugging Face after bart: bart, mbart, pegasus, marian and their kin.

Each type states where its class differs from bart's (`modeling_<type>.py` of transformers 5.23).
The job's sequence_length counts the decoder's tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from planner.errors import UnsupportedModelError
from planner.importers.fields import POSITION_LIMIT, Fields
from planner.importers.hugging_face.attention import BIASED, layer_count, multi_head
from planner.importers.hugging_face.encoder import AS_LONG
from planner.importers.hugging_face.masked import big_bird_keys, longformer_keys
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

TROCR_ALIASES = {
    "hidden_size": "d_model",
    "num_attention_heads": "decoder_attention_heads",
    "num_hidden_layers": "decoder_layers",
}
BART_ALIASES = {
    "hidden_size": "d_model",
    "num_attention_heads": "encoder_attention_heads",
    "num_hidden_layers": "encoder_layers",
}
FSMT_ALIASES = {**BART_ALIASES, "vocab_size": "tgt_vocab_size"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """How a type differs from bart.

    `table` says where positions come from: a learned table of which `first_position` rows stay
    unused, angles that the class has as parameters, or angles that are none. `positions` is what
    their number is unless told, in `length`. `biased`: products of attention have biases.
    """

    placement: NormPlacement = NormPlacement.AFTER
    embedding_norm: bool = True
    final_norm: bool = False
    table: bool = True
    first_position: int = 0
    positions: int = 1024
    length: str = "max_position_embeddings"
    biased: Callable[[Fields], bool] = lambda _fields: True


_BART = _Kind(first_position=2)
_BEFORE = NormPlacement.BEFORE
_KINDS = {
    "bart": _BART,
    "bigbird_pegasus": _Kind(
        placement=_BEFORE,
        embedding_norm=False,
        final_norm=True,
        positions=4096,
        biased=lambda fields: fields.flag("use_bias", False),
    ),
    "blenderbot": _Kind(placement=_BEFORE, embedding_norm=False, final_norm=True, positions=128),
    "blenderbot-small": _Kind(positions=512),
    "fsmt": _Kind(embedding_norm=False, first_position=1),
    "led": _Kind(length="max_decoder_position_embeddings"),
    "m2m_100": _Kind(placement=_BEFORE, embedding_norm=False, final_norm=True, table=False),
    "marian": _Kind(embedding_norm=False),
    "mbart": _Kind(placement=_BEFORE, final_norm=True, first_position=2),
    "mvp": _BART,
    "pegasus": _Kind(placement=_BEFORE, embedding_norm=False, final_norm=True),
    "pegasus_x": _Kind(
        placement=_BEFORE,
        embedding_norm=False,
        final_norm=True,
        table=False,
        positions=16384,
        biased=lambda _fields: False,
    ),
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
    width, biased = fields.size("d_model"), kind.biased(fields)
    biases = {**BIASED, "query_key_value_bias": biased, "output_bias": biased}
    positions = fields.size(kind.length, kind.positions, limit=POSITION_LIMIT)
    rows = positions + kind.first_position if kind.table else 0
    own = multi_head(fields, "decoder_attention_heads", "d_model").model_copy(update=biases)
    cross = CrossAttention(
        head_count=own.head_count,
        key_value_head_count=own.head_count,
        head_size=own.head_size,
        source_width=width,
        query_key_value_bias=biased,
        output_bias=biased,
    )
    encoder = Block(
        attention=multi_head(fields, "encoder_attention_heads", "d_model").model_copy(
            update={**biases, "causal": False}
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


def led(fields: Fields, name: str) -> ModelGraph:
    """Return a led: a bart whose encoder sees windows, and has products for tokens that see all.

    Here none does, so that those products are counted as parameters alone.

    Raises:
        UnsupportedModelError: if its layers differ in their window.
    """
    graph = bart_kin(fields, name)
    width = graph.hidden_size
    rows = fields.size("max_encoder_position_embeddings", 16384, limit=POSITION_LIMIT)
    keys = longformer_keys(fields)
    said = (*graph.assumptions, keys.said)
    table = {"table_elements": rows * width}
    products = Entry(table_elements=3 * (width + 1) * width)
    return _encoded(graph, window=keys.count // 2, entry=table, beside=products, said=said)


def bigbird_pegasus(fields: Fields, name: str) -> ModelGraph:
    """Return a bigbird_pegasus: its encoder sees some blocks, counted as a window."""
    graph, keys = bart_kin(fields, name), big_bird_keys(fields)
    if keys is None:
        return graph
    said = (*graph.assumptions, keys.said)
    return _encoded(graph, window=keys.count // 2, said=said)


def pegasus_x(fields: Fields, name: str) -> ModelGraph:
    """Return a pegasus_x: its encoder sees blocks, and rows of its own that see all.

    Those rows pass the encoder's parts as well, which is left out and said.
    """
    graph = bart_kin(fields, name)
    width, rows = graph.hidden_size, fields.size("num_global_tokens", 32)
    left = f"the {rows} rows of the encoder that see all are left out"
    return _encoded(
        graph,
        chunk=fields.size("block_size", 512, limit=POSITION_LIMIT),
        entry={"table_elements": rows * width},
        beside=Entry(norm_widths=(width,)),
        said=(*graph.assumptions, left),
    )


def fsmt(fields: Fields, name: str) -> ModelGraph:
    """Return a fsmt: a bart with a vocabulary for each half, whose head is not tied.

    The encoder's own embedding is held whole by tensor-parallel ranks.
    """
    given = fields.size("tgt_vocab_size", 42024)
    longest = fields.size("max_position_embeddings", 1024, limit=POSITION_LIMIT)
    rows = longest + fields.size("pad_token_id", 1, minimum=0)  # those up to it stay unused
    filled = fields.filled({"tie_word_embeddings": False, "vocab_size": given})
    graph = bart_kin(filled.replaced({"max_position_embeddings": rows}), name)
    graph = graph.model_copy(update={"maximum_sequence_length": longest})
    entry = graph.runs[0].entry or Entry()
    tokens = fields.size("src_vocab_size", 42024) * graph.hidden_size
    return _encoded(graph, entry={"table_elements": entry.table_elements + tokens})


def _encoded(
    graph: ModelGraph,
    *,
    window: int | None = None,
    chunk: int | None = None,
    entry: Mapping[str, int] | None = None,
    beside: Entry | None = None,
    said: tuple[str, ...] | None = None,
) -> ModelGraph:
    """Return `graph` with what its encoder's attention sees, and what else that half has."""
    run, *decoder = graph.runs
    sees = {
        "sliding_window_tokens": None if window is None else max(window, 1),
        "chunk_tokens": chunk,
    }
    attention = run.block.attention.model_copy(update=sees)
    block = run.block.model_copy(update={"attention": attention, "beside": beside})
    first = (run.entry or Entry()).model_copy(update=entry or {})
    return graph.model_copy(
        update={
            "runs": (run.model_copy(update={"block": block, "entry": first}), *decoder),
            "assumptions": graph.assumptions if said is None else said,
        }
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


def trocr(fields: Fields, name: str) -> ModelGraph:
    """Return a trocr by itself: a decoder whose attention across reads nothing.

    Its weights are counted as parameters, and that no tower stands before it is said.
    """
    width = fields.size("d_model")
    source = fields.optional_size("cross_attention_hidden_size") or width
    idle = 2 * (width + 1) * width + 2 * (source + 1) * width
    block = _trocr_block(fields).model_copy(
        update={"beside": Entry(norm_widths=(width,), table_elements=idle)}
    )
    said = "attention across reads nothing, as no tower stands before the decoder"
    return _trocr(fields, name, block, tower=(), said=(said,))


def trocr_behind(
    fields: Fields, name: str, tower: tuple[BlockRun, ...], said: tuple[str, ...]
) -> ModelGraph:
    """Return a trocr that reads what `tower` puts out; `said` is what was assumed of that."""
    tokens, source = tower[-1].output(fields.size("d_model"))
    own = _trocr_block(fields)
    heads = multi_head(fields, "decoder_attention_heads", "d_model")
    cross = CrossAttention(
        head_count=heads.head_count,
        key_value_head_count=heads.head_count,
        head_size=heads.head_size,
        source_width=source,
        source_tokens_per_sequence=tokens,
        query_key_value_bias=True,
        output_bias=True,
    )
    block = own.model_copy(update={"cross_attention": cross})
    return _trocr(fields, name, block, tower=tower, said=said)


def _trocr_block(fields: Fields) -> Block:
    heads = multi_head(fields, "decoder_attention_heads", "d_model")
    return Block(
        attention=heads.model_copy(update=BIASED),
        feed_forward=_plain(fields, "decoder_ffn_dim"),
        norm=Norm.LAYER,
        norm_placement=NormPlacement.AFTER,
    )


def _trocr(
    fields: Fields, name: str, block: Block, *, tower: tuple[BlockRun, ...], said: tuple[str, ...]
) -> ModelGraph:
    width = fields.size("d_model")
    positions = fields.size("max_position_embeddings", 512, limit=POSITION_LIMIT)
    learned = fields.flag("use_learned_position_embeddings", True)
    normed = fields.flag("layernorm_embedding", True)
    decoder = BlockRun(
        block=block,
        block_count=layer_count(fields, "decoder_layers"),
        entry=Entry(norm_widths=(width,)) if normed else None,
    )
    return ModelGraph(
        name=name,
        architecture="trocr",
        hidden_size=width,
        vocabulary_size=fields.size("vocab_size"),
        tied_embeddings=fields.flag("tie_word_embeddings", True),
        learned_position_count=positions + _BART.first_position if learned else 0,
        final_norm=None,
        maximum_sequence_length=positions,
        runs=(*tower, decoder),
        assumptions=said,
    )


READERS: Mapping[str, Callable[[Fields, str], ModelGraph]] = {
    "bigbird_pegasus": bigbird_pegasus,
    "fsmt": fsmt,
    "led": led,
    "pegasus_x": pegasus_x,
}
"""What reads the types whose encoder is not bart's."""
