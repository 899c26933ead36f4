"""Encoders of text of Hugging Face: bert and its kin, with the heads of their classes.

Each type states where its class differs from bert's, and the defaults of its configuration class
(`configuration_<type>.py` of transformers 5.23). `architectures` says which head follows the
blocks; without it the head predicts masked tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from planner.errors import UnsupportedModelError
from planner.importers.fields import POSITION_LIMIT, Fields
from planner.importers.hf_attention import layer_count, multi_head
from planner.importers.hf_heads import EncoderHeads, with_encoder_head
from planner.schema.model import (
    Block,
    BlockRun,
    DenseFeedForward,
    Entry,
    GroupedQueryAttention,
    ModelGraph,
    Norm,
    NormPlacement,
    Product,
)

DISTILBERT_ALIASES = {
    "hidden_size": "dim",
    "num_attention_heads": "n_heads",
    "num_hidden_layers": "n_layers",
}
_BLOCKS_SEEN = 5  # of big_bird: three about a block of queries, the first and the last
_TAPAS_TYPES = (3, 256, 256, 2, 256, 256, 10)
_ROBERTA_FIRST_POSITION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """How a type differs from bert: names of fields, tables, norms, heads.

    `first_position` are rows of the table of positions that no token has. `embedding` is the field
    of the width of embeddings where that can differ from the blocks'.
    """

    heads: EncoderHeads = field(default_factory=EncoderHeads)
    width: str = "hidden_size"
    head_count: str = "num_attention_heads"
    layers: str = "num_hidden_layers"
    ffn: str = "intermediate_size"
    embedding: tuple[str, int | None] | None = None
    positions: int = 512
    learned: bool = True
    first_position: int = 0
    type_count: int | None = 2
    embedding_norm: bool = True
    placement: NormPlacement = NormPlacement.AFTER
    gated: bool = False
    attention_bias: bool = True
    ffn_bias: bool = True
    rotary: bool = False
    tables: Callable[[Fields, int], int] = lambda _fields, _width: 0


_ROBERTA = _Kind(heads=EncoderHeads(next_sentence=False), first_position=_ROBERTA_FIRST_POSITION)
_POOLED_NEVER = EncoderHeads(pooler="never", next_sentence=False)


def _tapas_tables(fields: Fields, width: int) -> int:
    given = fields.counts("type_vocab_sizes") or _TAPAS_TYPES
    return sum(given) * width


def _task_table(fields: Fields, width: int) -> int:
    if not fields.flag("use_task_id", False):
        return 0
    return fields.size("task_type_vocab_size", 3) * width


def _page_tables(fields: Fields, width: int) -> int:
    return 4 * fields.size("max_2d_position_embeddings", 1024) * width


def _distance_table(fields: Fields, _width: int) -> int:
    return fields.size("relative_attention_num_buckets", 32) * fields.size("num_attention_heads")


def _sinusoids(fields: Fields, _width: int) -> int:
    """Return the table of angles, which roformer's class has as a parameter that is never trained.

    It is as wide as a head.
    """
    positions = fields.size("max_position_embeddings", 1536, limit=POSITION_LIMIT)
    return positions * (fields.size("hidden_size") // fields.size("num_attention_heads"))


_KINDS: dict[str, _Kind] = {
    "bert": _Kind(),
    "bert-generation": _Kind(
        heads=EncoderHeads(pooler="never", transform=False, next_sentence=False), type_count=None
    ),
    "big_bird": _Kind(
        heads=EncoderHeads(pooler="always", dense=True, answers=False), positions=4096
    ),
    "camembert": _ROBERTA,
    "data2vec-text": _ROBERTA,
    "distilbert": _Kind(
        heads=_POOLED_NEVER,
        width="dim",
        head_count="n_heads",
        layers="n_layers",
        ffn="hidden_dim",
        type_count=None,
    ),
    "electra": _Kind(heads=_POOLED_NEVER, embedding=("embedding_size", 128)),
    "ernie": _Kind(tables=_task_table),
    "esm": _Kind(
        heads=EncoderHeads(next_sentence=False, contacts=True),
        positions=1026,
        type_count=None,
        embedding_norm=False,
        placement=NormPlacement.BEFORE,
    ),
    "gte": _Kind(
        heads=EncoderHeads(pooler="classes", next_sentence=False),
        positions=8192,
        learned=False,
        type_count=1,
        gated=True,
        rotary=True,
    ),
    "jina_embeddings_v3": _Kind(
        heads=EncoderHeads(next_sentence=False),
        positions=8194,
        learned=False,
        type_count=1,
        rotary=True,
    ),
    "layoutlm": _Kind(
        heads=EncoderHeads(pooler="always", next_sentence=False), tables=_page_tables
    ),
    "megatron-bert": _Kind(embedding_norm=False, placement=NormPlacement.BEFORE),
    "mpnet": _Kind(
        heads=EncoderHeads(next_sentence=False),
        first_position=_ROBERTA_FIRST_POSITION,
        type_count=None,
        tables=_distance_table,
    ),
    "nomic_bert": _Kind(
        heads=EncoderHeads(pooler="classes", next_sentence=False),
        positions=2048,
        learned=False,
        gated=True,
        attention_bias=False,
        ffn_bias=False,
        rotary=True,
    ),
    "roberta": _ROBERTA,
    "roberta-prelayernorm": _Kind(
        heads=EncoderHeads(next_sentence=False),
        first_position=_ROBERTA_FIRST_POSITION,
        placement=NormPlacement.BEFORE,
    ),
    "roformer": _Kind(
        heads=EncoderHeads(pooler="never", next_sentence=False, dense_choice=False),
        embedding=("embedding_size", None),
        positions=1536,
        learned=False,
        rotary=True,
        tables=_sinusoids,
    ),
    "tapas": _Kind(
        heads=EncoderHeads(next_sentence=False, answers=False),
        positions=1024,
        type_count=None,
        tables=_tapas_tables,
    ),
    "xlm-roberta": _ROBERTA,
    "xlm-roberta-xl": _Kind(
        heads=EncoderHeads(next_sentence=False),
        positions=514,
        first_position=_ROBERTA_FIRST_POSITION,
        type_count=1,
        embedding_norm=False,
        placement=NormPlacement.BEFORE,
    ),
}
BERT_KIN = tuple(_KINDS)


def bert_kin(fields: Fields, name: str) -> ModelGraph:
    """Return an encoder of the kind of bert, with the head that its class has.

    Raises:
        UnsupportedModelError: if it attends to another encoder.
    """
    model_type = fields.text("model_type") or "bert"
    kind = _KINDS[model_type]
    if fields.flag("add_cross_attention", False):
        raise UnsupportedModelError(
            "cross-attention of an encoder's blocks cannot be priced",
            field=fields.spelling("add_cross_attention"),
            value=True,
            remedy="set it to false, or trace the model with `meshwright trace`",
        )
    width, positions = fields.size(kind.width), _positions(fields, kind)
    embedded = _embedding_width(fields, kind, width)
    narrow = embedded != width
    learned = positions if kind.learned and _learns_positions(fields) else 0
    graph = ModelGraph(
        name=name,
        architecture=model_type,
        hidden_size=width,
        vocabulary_size=fields.size("vocab_size"),
        embedding_size=embedded if narrow else None,
        learned_position_count=0 if narrow else learned,
        final_norm=Norm.LAYER if kind.placement is NormPlacement.BEFORE else None,
        head_bias=True,
        maximum_sequence_length=max(positions - kind.first_position, 1),
        runs=(
            BlockRun(
                block=_block(fields, kind),
                block_count=layer_count(fields, kind.layers),
                entry=_entry(fields, kind, embedded, positions=learned if narrow else 0),
            ),
        ),
        assumptions=_assumptions(fields),
    )
    return with_encoder_head(graph, fields, kind.heads)


def _positions(fields: Fields, kind: _Kind) -> int:
    return fields.size("max_position_embeddings", kind.positions, limit=POSITION_LIMIT)


def _learns_positions(fields: Fields) -> bool:
    return fields.text("position_embedding_type") in {None, "absolute"}


def _embedding_width(fields: Fields, kind: _Kind, width: int) -> int:
    if kind.embedding is None:
        return width
    name, default = kind.embedding
    return fields.size(name, width if default is None else default)


def _block(fields: Fields, kind: _Kind) -> Block:
    attention = multi_head(fields, kind.head_count, kind.width).model_copy(
        update={
            "query_key_value_bias": kind.attention_bias and fields.flag("use_bias", True),
            "output_bias": kind.attention_bias,
            "rotary": kind.rotary or fields.text("position_embedding_type") == "rotary",
            "causal": fields.flag("is_decoder", False),
        }
    )
    ffn_size = fields.size(kind.ffn)
    gate_bias = kind.gated and kind.ffn_bias  # gte: the last of its three products alone has one
    return Block(
        attention=_windowed(fields, attention),
        feed_forward=DenseFeedForward(
            ffn_size=ffn_size,
            gated=kind.gated,
            bias=kind.ffn_bias and not kind.gated,
            scale_elements=fields.size(kind.width) if gate_bias else 0,
        ),
        norm=Norm.LAYER,
        norm_placement=kind.placement,
    )


def _windowed(fields: Fields, attention: GroupedQueryAttention) -> GroupedQueryAttention:
    """Return `attention`, a big_bird's with a window of as many keys as its blocks see."""
    keys = _sparse_keys(fields)
    if keys is None:
        return attention
    return attention.model_copy(update={"sliding_window_tokens": max(keys // 2, 1)})


def _sparse_keys(fields: Fields) -> int | None:
    sparse = fields.text("attention_type") or "block_sparse"
    if fields.text("model_type") != "big_bird" or sparse != "block_sparse":
        return None
    blocks = _BLOCKS_SEEN + fields.size("num_random_blocks", 3, minimum=0)
    return blocks * fields.size("block_size", 64)


def _assumptions(fields: Fields) -> tuple[str, ...]:
    keys = _sparse_keys(fields)
    if keys is None:
        return ()
    return (f"attention to blocks is counted as a window of {keys} keys",)


def _entry(fields: Fields, kind: _Kind, embedded: int, *, positions: int) -> Entry:
    """Return tables beside that of tokens, the norm of their sum, and its way to the width."""
    types, width = 0, fields.size(kind.width)
    if kind.type_count is not None:
        types = fields.size("type_vocab_size", kind.type_count, minimum=0)
    product = Product(inner_size=embedded, outer_size=width, bias=True)
    normed = kind.embedding_norm or fields.flag("emb_layer_norm_before", False)
    return Entry(
        products=(product,) if embedded != width else (),
        norm_widths=(embedded,) if normed else (),
        table_elements=(types + positions) * embedded + kind.tables(fields, embedded),
    )
