"""Encoders of text of Hugging Face: bert and its kin, with the heads of their classes.

Each type states where its class differs from bert's, and the defaults of its configuration class
(`configuration_<type>.py` of transformers 5.23). `architectures` says which head follows the
blocks; without it the head predicts masked tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from planner.errors import UnsupportedModelError
from planner.importers.fields import POSITION_LIMIT, Fields
from planner.importers.hugging_face.attention import layer_count, multi_head
from planner.importers.hugging_face.heads import EncoderHeads, with_encoder_head
from planner.schema.model import (
    Block,
    BlockRun,
    DenseFeedForward,
    Entry,
    ModelGraph,
    Norm,
    NormPlacement,
    Product,
)

_DISTILBERT_ALIASES = {
    "hidden_size": "dim",
    "num_attention_heads": "n_heads",
    "num_hidden_layers": "n_layers",
}
_XLM_ALIASES = {
    "hidden_size": "emb_dim",
    "num_attention_heads": "n_heads",
    "num_hidden_layers": "n_layers",
    "n_words": "vocab_size",
}
ALIASES = {"distilbert": _DISTILBERT_ALIASES, "flaubert": _XLM_ALIASES, "xlm": _XLM_ALIASES}
_XLM_WIDENED = 4
_BLOCKS_SEEN = 5  # of big_bird: three about a block of queries, the first and the last
_TAPAS_TYPES = (3, 256, 256, 2, 256, 256, 10)
_ROBERTA_FIRST_POSITION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """How a type differs from bert: names of fields, tables, norms, heads.

    `first_position` are rows of the table of positions that no token has, `more_positions` those
    beyond `max_position_embeddings`. `embedding` is the field of the width of embeddings where that
    can differ from the blocks'; `mapped` says what is put side by side and mapped to that width.
    `pre_norm`: a field of that name puts norms before the parts, with one at the end where
    `ends_normed`. `beside` is what a block has beside its parts, `keys` how many keys a token sees.
    """

    heads: EncoderHeads = field(default_factory=EncoderHeads)
    width: str = "hidden_size"
    head_count: str = "num_attention_heads"
    layers: str = "num_hidden_layers"
    ffn: str | None = "intermediate_size"
    embedding: tuple[str, int | None] | None = None
    positions: int = 512
    learned: bool = True
    first_position: int = 0
    more_positions: int = 0
    type_count: int | None = 2
    embedding_norm: bool = True
    placement: NormPlacement = NormPlacement.AFTER
    gated: bool = False
    attention_bias: bool = True
    ffn_bias: bool = True
    rotary: bool = False
    causal: str = "is_decoder"
    pre_norm: bool = False
    ends_normed: bool = True
    tables: Callable[[Fields, int], int] = lambda _fields, _width: 0
    mapped: Callable[[Fields, int], int | None] = lambda _fields, _width: None
    beside: Callable[[Fields, int], Entry | None] = lambda _fields, _width: None
    keys: Callable[[Fields], _Keys | None] = lambda _fields: None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Keys:
    """How many keys a token sees where that are not all, and what assumptions say of it."""

    count: int
    said: str


_ROBERTA = _Kind(heads=EncoderHeads(next_sentence=False), first_position=_ROBERTA_FIRST_POSITION)
_POOLED_NEVER = EncoderHeads(pooler="never", next_sentence=False)
_POOLED_NEVER_ONE_BIAS = replace(_POOLED_NEVER, second_bias=False)


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


def _language_table(fields: Fields, width: int) -> int:
    languages = fields.size("n_langs", 1)
    return languages * width if languages > 1 and fields.flag("use_lang_emb", True) else 0


def _characters(fields: Fields) -> tuple[tuple[str, int, int], ...]:
    """Return the tables of sounds and shapes of characters that roc_bert has: name, rows, width."""
    tables = (("pronunciation", 910, 768), ("shape", 24858, 512))
    return tuple(
        (
            name,
            fields.size(f"{name}_vocab_size", rows),
            fields.size(f"{name}_embed_dim", width),
        )
        for name, rows, width in tables
    )


def _character_tables(fields: Fields, _width: int) -> int:
    return sum(rows * width for _, rows, width in _characters(fields))


def _character_width(fields: Fields, width: int) -> int | None:
    """Return the width of a token beside what sounds and shapes of its characters give.

    Raises:
        UnsupportedModelError: if those are added instead, as no released roc_bert has them.
    """
    if not fields.flag("concat_input", True):
        raise UnsupportedModelError(
            "tables that are added to the tokens' cannot be priced",
            field="concat_input",
            value=False,
            remedy="set it to true, or trace the model with `meshwright trace`",
        )
    given = (size for name, _, size in _characters(fields) if fields.flag(f"enable_{name}", True))
    return width + sum(given)


def _language_adapters(fields: Fields, width: int) -> Entry:
    """Return xmod's adapter of a token's language; those of the others are tables."""
    inner = max(width // fields.size("adapter_reduction_factor", 2), 1)
    down = Product(inner_size=width, outer_size=inner, bias=True)
    up = Product(inner_size=inner, outer_size=width, bias=True)
    named = fields.texts("languages")
    others = len(("en_XX",) if named is None else named) - 1
    own = fields.flag("adapter_layer_norm", False)
    return Entry(
        products=(down, up),
        norm_widths=(width,) if own else (),
        table_elements=max(others, 0) * ((width + 1) * inner + (inner + 1) * width),
    )


def _global_products(_fields: Fields, width: int) -> Entry:
    """Return longformer's products for tokens that see all: here none does."""
    return Entry(table_elements=3 * (width + 1) * width)


def longformer_keys(fields: Fields) -> _Keys:
    """Return the keys of a longformer's window.

    Raises:
        UnsupportedModelError: if its layers differ in it.
    """
    given = fields.counts("attention_window") if fields.is_list("attention_window") else ()
    if len(set(given)) > 1:
        raise UnsupportedModelError(
            "layers of several windows cannot be priced",
            field="attention_window",
            value=list(given[:4]),
            remedy="write one number, or trace the model with `meshwright trace`",
        )
    count = given[0] if given else fields.size("attention_window", 512, limit=POSITION_LIMIT)
    return _Keys(count=count, said="no token was assumed to see all others (global attention)")


def _convolved_heads(field: str, default: int | None) -> Callable[[Fields, int], Entry | None]:
    """Return what reads a convolution along the values of each head, of as many taps as `field`."""

    def read(fields: Fields, _width: int) -> Entry | None:
        taps = fields.optional_size(field, default)
        return None if taps is None else Entry(table_elements=taps * _heads(fields))

    return read


def _heads(fields: Fields) -> int:
    return fields.size("num_attention_heads")


def _landmark_keys(fields: Fields) -> _Keys | None:
    landmarks = fields.size("num_landmarks", 64)
    if landmarks == fields.size("segment_means_seq_len", 64):
        return None  # its class attends to all then
    count = 2 * landmarks
    return _Keys(count=count, said=f"attention by landmarks is counted as a window of {count} keys")


def big_bird_keys(fields: Fields) -> _Keys | None:
    """Return the keys of a big_bird's blocks, None where it sees all."""
    if (fields.text("attention_type") or "block_sparse") != "block_sparse":
        return None
    blocks = _BLOCKS_SEEN + fields.size("num_random_blocks", 3, minimum=0)
    count = blocks * fields.size("block_size", 64)
    return _Keys(count=count, said=f"attention to blocks is counted as a window of {count} keys")


_ROBERTA_HEADS = EncoderHeads(next_sentence=False)
_XLM = _Kind(
    heads=EncoderHeads(
        pooler="never",
        transform=False,
        next_sentence=False,
        answers=False,
        dense_classes=False,
        second_bias=False,
    ),
    width="emb_dim",
    head_count="n_heads",
    layers="n_layers",
    ffn=None,
    type_count=None,
    causal="causal",
    tables=_language_table,
)
_KINDS: dict[str, _Kind] = {
    "bert": _Kind(),
    "bert-generation": _Kind(
        heads=EncoderHeads(pooler="never", transform=False, next_sentence=False), type_count=None
    ),
    "big_bird": _Kind(
        heads=EncoderHeads(pooler="always", dense=True, answers=False),
        positions=4096,
        keys=big_bird_keys,
    ),
    "camembert": _ROBERTA,
    "data2vec-text": _ROBERTA,
    "distilbert": _Kind(
        heads=_POOLED_NEVER_ONE_BIAS,
        width="dim",
        head_count="n_heads",
        layers="n_layers",
        ffn="hidden_dim",
        type_count=None,
    ),
    "electra": _Kind(heads=_POOLED_NEVER_ONE_BIAS, embedding=("embedding_size", 128)),
    "ernie": _Kind(tables=_task_table),
    "esm": _Kind(
        heads=EncoderHeads(next_sentence=False, contacts=True, second_bias=False),
        positions=1026,
        type_count=None,
        embedding_norm=False,
        placement=NormPlacement.BEFORE,
    ),
    "flaubert": replace(_XLM, pre_norm=True, ends_normed=False),
    "gte": _Kind(
        heads=EncoderHeads(pooler="classes", next_sentence=False, second_bias=False),
        positions=8192,
        learned=False,
        type_count=1,
        gated=True,
        rotary=True,
    ),
    "ibert": _ROBERTA,
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
    "longformer": replace(_ROBERTA, beside=_global_products, keys=longformer_keys),
    "megatron-bert": _Kind(embedding_norm=False, placement=NormPlacement.BEFORE),
    "mpnet": _Kind(
        heads=EncoderHeads(next_sentence=False),
        first_position=_ROBERTA_FIRST_POSITION,
        type_count=None,
        tables=_distance_table,
    ),
    "mra": _Kind(heads=_POOLED_NEVER, more_positions=2, type_count=1),
    "nomic_bert": _Kind(
        heads=EncoderHeads(pooler="classes", next_sentence=False),
        positions=2048,
        learned=False,
        gated=True,
        attention_bias=False,
        ffn_bias=False,
        rotary=True,
    ),
    "nystromformer": _Kind(
        heads=_POOLED_NEVER,
        positions=510,
        more_positions=2,
        beside=_convolved_heads("conv_kernel_size", 65),
        keys=_landmark_keys,
    ),
    "rembert": _Kind(
        heads=EncoderHeads(
            next_sentence=False,
            own_embedding=("output_embedding_size", 1664),
            second_bias=False,
        ),
        embedding=("input_embedding_size", 256),
    ),
    "roberta": _ROBERTA,
    "roberta-prelayernorm": _Kind(
        heads=EncoderHeads(next_sentence=False),
        first_position=_ROBERTA_FIRST_POSITION,
        placement=NormPlacement.BEFORE,
    ),
    "roc_bert": _Kind(heads=_ROBERTA_HEADS, tables=_character_tables, mapped=_character_width),
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
    "xlm": _XLM,
    "xlm-roberta": _ROBERTA,
    "xlm-roberta-xl": _Kind(
        heads=EncoderHeads(next_sentence=False),
        positions=514,
        first_position=_ROBERTA_FIRST_POSITION,
        type_count=1,
        embedding_norm=False,
        placement=NormPlacement.BEFORE,
    ),
    "xmod": replace(_ROBERTA, pre_norm=True, beside=_language_adapters),
    "yoso": _Kind(
        heads=_POOLED_NEVER,
        positions=4096,
        more_positions=2,
        type_count=1,
        beside=_convolved_heads("conv_window", None),
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
    _refuse_adaptive_head(fields)
    width, positions = fields.size(kind.width), _positions(fields, kind)
    block = _block(fields, kind)
    normed_before = block.norm_placement is NormPlacement.BEFORE
    embedded = _embedding_width(fields, kind, width)
    narrow = embedded != width
    learned = positions + kind.more_positions if _learns_positions(fields, kind) else 0
    graph = ModelGraph(
        name=name,
        architecture=model_type,
        hidden_size=width,
        vocabulary_size=fields.size("vocab_size"),
        embedding_size=embedded if narrow else None,
        learned_position_count=0 if narrow else learned,
        final_norm=Norm.LAYER if normed_before and kind.ends_normed else None,
        head_bias=True,
        maximum_sequence_length=max(positions - kind.first_position, 1),
        runs=(
            BlockRun(
                block=block,
                block_count=layer_count(fields, kind.layers),
                entry=_entry(fields, kind, embedded, positions=learned if narrow else 0),
            ),
        ),
        assumptions=() if (keys := kind.keys(fields)) is None else (keys.said,),
    )
    return with_encoder_head(graph, fields, kind.heads)


def _positions(fields: Fields, kind: _Kind) -> int:
    return fields.size("max_position_embeddings", kind.positions, limit=POSITION_LIMIT)


def _learns_positions(fields: Fields, kind: _Kind) -> bool:
    return kind.learned and fields.text("position_embedding_type") in {None, "absolute"}


def _refuse_adaptive_head(fields: Fields) -> None:
    if fields.text("model_type") in {"xlm", "flaubert"} and fields.flag("asm", False):
        raise UnsupportedModelError(
            "an adaptive softmax cannot be priced",
            field="asm",
            value=True,
            remedy="set it to false, or trace the model with `meshwright trace`",
        )


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
            "causal": fields.flag(kind.causal, False),
        }
    )
    width = fields.size(kind.width)
    ffn_size = _XLM_WIDENED * width if kind.ffn is None else fields.size(kind.ffn)
    gate_bias = kind.gated and kind.ffn_bias  # gte: the last of its three products alone has one
    before = kind.pre_norm and fields.flag("pre_norm", False)
    keys = kind.keys(fields)
    return Block(
        attention=attention.model_copy(
            update={"sliding_window_tokens": None if keys is None else max(keys.count // 2, 1)}
        ),
        feed_forward=DenseFeedForward(
            ffn_size=ffn_size,
            gated=kind.gated,
            bias=kind.ffn_bias and not kind.gated,
            scale_elements=width if gate_bias else 0,
        ),
        norm=Norm.LAYER,
        norm_placement=NormPlacement.BEFORE if before else kind.placement,
        beside=kind.beside(fields, width),
    )


def _entry(fields: Fields, kind: _Kind, embedded: int, *, positions: int) -> Entry:
    """Return tables beside that of tokens, the norm of their sum, and its way to the width."""
    types, width = 0, fields.size(kind.width)
    if kind.type_count is not None:
        types = fields.size("type_vocab_size", kind.type_count, minimum=0)
    mapped = kind.mapped(fields, embedded)
    product = Product(inner_size=mapped or embedded, outer_size=width, bias=True)
    normed = kind.embedding_norm or fields.flag("emb_layer_norm_before", False)
    return Entry(
        products=(product,) if embedded != width or mapped is not None else (),
        norm_widths=(embedded,) if normed else (),
        table_elements=(types + positions) * embedded + kind.tables(fields, embedded),
    )
