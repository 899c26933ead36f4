"""Heads of Hugging Face: what `architectures` says that follows the blocks.

A decoder's class names end in ForCausalLM or LMHeadModel where the head predicts tokens, which is
what readers give. The others put a product of as many columns as there are labels, or nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from planner.importers.fields import Fields
from planner.schema.model import (
    Entry,
    GroupedQueryAttention,
    ModelGraph,
    Norm,
    Product,
    RunPart,
)

_NO_HEAD, _CLASSIFIES = "Model", "ForSequenceClassification"
_LABELS = 2  # of a configuration that names none
_PREDICTS = (
    "ForCausalLM",
    "LMHeadModel",
    "ForMaskedLM",
    "ForConditionalGeneration",
    "VLChatModel",
    "MTModel",
)
_LENGTH_LIMIT = 64  # nothing longer is near a class's name
# Suffix of a class, whether its product has a bias, and its columns where they are no labels.
_DECODER_HEADS: tuple[tuple[str, bool, int | None], ...] = (
    (_CLASSIFIES, False, None),
    ("ForTokenClassification", True, None),
    ("ForQuestionAnswering", True, 2),
)
_OTHER = ("ForMultipleChoice", "ForRewardModeling", "RewardModel", "DoubleHeadsModel")


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderHeads:
    """Which heads an encoder's classes have.

    `pooler` is a product of the first token's row: in the base class and those that classify a
    sequence (`base`), in the latter alone (`classes`), in all (`always`) or in none (`never`).
    `transform`: a product and a norm stand before the logits of tokens. `contacts`: a product of
    all attention scores, which esm has beside. `next_sentence`: ForPreTraining has a second head.
    `dense`: a classifier of sequences has a product of its own after the pooler's. `dense_choice`:
    so has one of multiple choices, and with `dense_classes` one of sequences. `answers`: places of
    answers are found by one product. `own_embedding` is the field, and what it is unless told, of
    the width of an embedding that the logits have to themselves. `second_bias`: the head holds the
    bias of the logits twice, which are one as long as it is tied to the embedding.
    """

    pooler: Literal["base", "classes", "always", "never"] = "base"
    transform: bool = True
    contacts: bool = False
    next_sentence: bool = True
    dense: bool = False
    dense_choice: bool = True
    answers: bool = True
    dense_classes: bool = True
    own_embedding: tuple[str, int] | None = None
    second_bias: bool = True


def label_count(fields: Fields) -> int:
    """Return the labels of a classifier: `num_labels`, else those of `id2label`, else 2."""
    named = len(fields.section("id2label").names()) if fields.is_mapping("id2label") else _LABELS
    return fields.size("num_labels", named or _LABELS)


def named_class(fields: Fields) -> str | None:
    """Return the class that `architectures` names first, None where it names none."""
    return fields.first_text("architectures")


def with_decoder_head(graph: ModelGraph, fields: Fields) -> ModelGraph:
    """Return `graph`, which predicts tokens, with the head of the class that is named.

    Where that is unknown the graph stays, and its assumptions say so.
    """
    named = named_class(fields)
    if named is None or named.endswith(_PREDICTS):
        return graph
    if named.endswith(_NO_HEAD) and not named.endswith(_OTHER):
        return _headed(graph, 0, bias=False)
    behind = any(run.part is RunPart.ENCODER for run in graph.runs)
    for suffix, bias, columns in _DECODER_HEADS:
        if named.endswith(suffix) and not behind:
            return _headed(graph, columns or label_count(fields), bias=bias)
    return _told(graph, named, "which may have another head")


def told_head(graph: ModelGraph, fields: Fields, *, own: str) -> ModelGraph:
    """Return `graph`, and where a class is named that does not end in `own`, what is priced."""
    named = named_class(fields)
    if named is None or named.endswith(own):
        return graph
    return _told(graph, named, "which may have another head")


def with_encoder_head(graph: ModelGraph, fields: Fields, heads: EncoderHeads) -> ModelGraph:
    """Return `graph`, the blocks of an encoder, with the head of the class that is named.

    Where that is unknown it predicts masked tokens, and assumptions say so.
    """
    named = named_class(fields)
    base = named is not None and named.endswith(_NO_HEAD) and not named.endswith("LMHeadModel")
    pooled = heads.pooler == "always" or (base and heads.pooler == "base")
    first: tuple[Product, ...] = (_pooler(graph),) if pooled else ()
    more = _contact_elements(graph) if heads.contacts else 0
    if base:
        return _ended(graph, 0, first, more=more, bias=False)
    own = heads.own_embedding
    tied = own is None and fields.flag("tie_word_embeddings", True)
    width = graph.embedding_size or graph.hidden_size if own is None else fields.size(*own)
    if named is None:
        return _predicting(graph, heads, first, more, width=width, tied=tied)
    found = "ForQuestionAnswering" if heads.answers else "ForQuestionAnsweringSimple"
    if named.endswith(("ForTokenClassification", found)):
        return _ended(graph, label_count(fields), first, more=more)
    classes = _classes(named, heads, label_count(fields))
    if classes is not None:
        dense = heads.dense and named.endswith(_CLASSIFIES)
        bare = not (heads.dense_classes and (heads.dense_choice or named.endswith(_CLASSIFIES)))
        middle = () if bare or (pooled and not dense) else (_pooler(graph),)
        last = (_pooler(graph, classes),)
        return _ended(graph, 0, (*first, *middle, *last), more=more, bias=False)
    if named.endswith("ForPreTraining") and heads.next_sentence:
        first = (_pooler(graph), _pooler(graph, 2))
    elif not named.endswith((*_PREDICTS, "Decoder")):
        graph = _told(graph, named, "which may have another head")
    return _predicting(graph, heads, first, more, width=width, tied=tied)


def _classes(named: str, heads: EncoderHeads, labels: int) -> int | None:
    """Return the classes of a whole sequence that a class's head has, None where it has none."""
    columns = {_CLASSIFIES: labels, "ForNextSentencePrediction": 2}
    if heads.dense_classes:
        columns["ForMultipleChoice"] = 1
    return next((count for suffix, count in columns.items() if named.endswith(suffix)), None)


def _predicting(
    graph: ModelGraph,
    heads: EncoderHeads,
    first: tuple[Product, ...],
    more: int,
    *,
    width: int,
    tied: bool,
) -> ModelGraph:
    """Return `graph` with the head that predicts masked tokens, by way of a product and a norm."""
    transform = Product(inner_size=graph.hidden_size, outer_size=width, bias=True)
    twice = heads.second_bias and not tied
    before = Entry(
        products=(*first, transform) if heads.transform else first,
        norm=Norm.LAYER,
        norm_widths=(width,) if heads.transform else (),
        table_elements=more + (graph.vocabulary_size if twice else 0),
    )
    return graph.model_copy(
        update={
            "before_head": before if before != Entry() else None,
            "tied_embeddings": tied,
        }
    )


def _ended(
    graph: ModelGraph,
    columns: int,
    products: tuple[Product, ...],
    *,
    more: int = 0,
    bias: bool = True,
) -> ModelGraph:
    before = Entry(products=products, table_elements=more) if products or more else None
    return _headed(graph, columns, bias=bias).model_copy(update={"before_head": before})


def _headed(graph: ModelGraph, columns: int, *, bias: bool) -> ModelGraph:
    """Return `graph` with a head of `columns`, tied to nothing."""
    return graph.model_copy(
        update={
            "head_size": columns,
            "head_bias": bias,
            "tied_embeddings": False,
            "final_logit_softcapping": None,
        }
    )


def _pooler(graph: ModelGraph, columns: int | None = None) -> Product:
    """Return a product of a sequence's first row, as wide as the model unless told."""
    width = graph.hidden_size
    return Product(inner_size=width, outer_size=columns or width, bias=True, tokens_per_sequence=1)


def _contact_elements(graph: ModelGraph) -> int:
    """Return the weights of a product of all attention scores of a pair of tokens, and its bias."""
    attentions = ((run.block.attention, run.block_count) for run in graph.runs)
    return 1 + sum(
        attention.head_count * count
        for attention, count in attentions
        if isinstance(attention, GroupedQueryAttention)
    )


def _told(graph: ModelGraph, named: str, has: str) -> ModelGraph:
    said = (
        f"architectures names {named[:_LENGTH_LIMIT]}, {has}; priced is one that predicts tokens, "
        f"{graph.hidden_size} x {graph.vocabulary_size}"
        + (", tied to the embedding" if graph.tied_embeddings else "")
    )
    return graph.model_copy(update={"assumptions": (*graph.assumptions, said)})


def with_image_head(
    graph: ModelGraph,
    fields: Fields,
    *,
    pooler_width: int | None,
    read_widths: int = 1,
    projection: int | None = None,
    own: str = _NO_HEAD,
) -> ModelGraph:
    """Return `graph`, an encoder of images, with what its class puts after the blocks.

    `pooler_width` is that of a product in the base class; a classifier reads `read_widths` rows
    side by side. `projection` is what a class WithProjection puts out. A class whose name ends in
    `own` has what `graph` has; of another, assumptions say so.
    """
    named = named_class(fields) or own
    if named.endswith(own):
        width = pooler_width if named.endswith(_NO_HEAD) else None
        return graph if width is None else _pooled(graph, 1, width, bias=True)
    if named.endswith("ForImageClassification"):
        return _pooled(graph, read_widths, label_count(fields), bias=True)
    if named.endswith("WithProjection") and projection is not None:
        return _pooled(graph, 1, projection, bias=False)
    said = f"architectures names {named[:_LENGTH_LIMIT]}, what follows whose blocks is not counted"
    return graph.model_copy(update={"assumptions": (*graph.assumptions, said)})


def _pooled(graph: ModelGraph, rows: int, columns: int, *, bias: bool) -> ModelGraph:
    """Return `graph` with a product of one row a sequence after its blocks."""
    product = Product(
        inner_size=rows * graph.hidden_size,
        outer_size=columns,
        bias=bias,
        tokens_per_sequence=1,
    )
    before = graph.before_head or Entry()
    products = (*before.products, product)
    return graph.model_copy(
        update={"before_head": before.model_copy(update={"products": products})}
    )


def with_class_head(
    graph: ModelGraph, fields: Fields, *, before: Entry | None, bias: bool
) -> ModelGraph:
    """Return `graph`, which predicts tokens, with the head of the class that is named.

    `before` stands before the logits of every class with a head, `bias` is that of a classifier.
    """
    named = named_class(fields)
    if named is not None and named.endswith(_NO_HEAD) and not named.endswith("LMHeadModel"):
        return _headed(graph, 0, bias=False)
    headed = graph.model_copy(update={"before_head": before})
    if named is None or named.endswith(_PREDICTS):
        return headed
    if named.endswith((_CLASSIFIES, "ForTokenClassification", "ForQuestionAnswering")):
        return _headed(headed, label_count(fields), bias=bias)
    if named.endswith("ForMultipleChoice"):
        return _headed(headed, 1, bias=bias)
    return _told(headed, named, "which may have another head")
