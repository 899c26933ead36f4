"""Encoders of sound of Hugging Face that read waves: wav2vec2 and its kin.

Convolutions make a row of every 20 ms; one over neighbouring rows stands for positions. Defaults
are those that `configuration_<type>.py` of transformers 5.23 share.
"""

from __future__ import annotations

from planner.errors import DocumentError, UnsupportedModelError
from planner.importers.fields import Fields, require_divides
from planner.importers.hugging_face.attention import BIASED, layer_count, multi_head
from planner.importers.hugging_face.heads import label_count, named_class
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

_SAMPLES = 480_000  # of 30 s, 16,000 a second
_WIDTHS = (512,) * 7
_STRIDES = (5, 2, 2, 2, 2, 2, 2)
_KERNELS = (10, 3, 3, 3, 3, 2, 2)
_MASK_RATIO = 0.05
WAVE_KIN = ("hubert", "unispeech", "unispeech-sat", "wav2vec2")


def waves(fields: Fields, name: str) -> ModelGraph:
    """Return a wav2vec2, hubert, unispeech or unispeech-sat, which predicts letters unless told.

    Raises:
        UnsupportedModelError: if it has adapters, or a batch norm for positions.
    """
    for field in ("add_adapter", "conv_pos_batch_norm"):
        if fields.flag(field, False):
            raise _unread(fields, field, value=True)
    if fields.optional_size("adapter_attn_dim") is not None:
        raise _unread(fields, "adapter_attn_dim", fields.optional_size("adapter_attn_dim"))
    stable = fields.flag("do_stable_layer_norm", False)
    attention = multi_head(fields).model_copy(update={**BIASED, "causal": False})
    block = Block(
        attention=attention,
        feed_forward=DenseFeedForward(
            ffn_size=fields.size("intermediate_size"), gated=False, bias=True
        ),
        norm=Norm.LAYER,
        norm_placement=NormPlacement.BEFORE if stable else NormPlacement.AFTER,
    )
    entry, tokens = _entry(fields, ends_with_norm=not stable)
    graph = ModelGraph(
        name=name,
        architecture=fields.text("model_type") or "wav2vec2",
        hidden_size=fields.size("hidden_size"),
        vocabulary_size=0,
        final_norm=Norm.LAYER if stable else None,
        head_size=0,
        maximum_sequence_length=tokens,
        runs=(BlockRun(block=block, block_count=layer_count(fields), entry=entry),),
        assumptions=(f"a sequence is 30 s of sound, {tokens} rows of 20 ms",),
    )
    return _headed(graph, fields)


def _headed(graph: ModelGraph, fields: Fields) -> ModelGraph:
    """Return `graph` with the head of its class.

    Raises:
        UnsupportedModelError: if it is another than letters, classes of a whole sequence, or none.
    """
    named = named_class(fields) or "ForCTC"
    if named.endswith("ForCTC"):
        return graph.model_copy(
            update={"head_size": fields.size("vocab_size", 32), "head_bias": True}
        )
    if named.endswith("ForSequenceClassification"):
        if fields.flag("use_weighted_layer_sum", False):
            raise _unread(fields, "use_weighted_layer_sum", value=True)
        inner = fields.size("classifier_proj_size", 256)
        products = (
            Product(inner_size=graph.hidden_size, outer_size=inner, bias=True),
            Product(
                inner_size=inner,
                outer_size=label_count(fields),
                bias=True,
                tokens_per_sequence=1,
            ),
        )
        return graph.model_copy(update={"before_head": Entry(products=products)})
    if named.endswith("Model"):
        return graph
    raise _unread(fields, "architectures", named[:64])


def _entry(fields: Fields, *, ends_with_norm: bool) -> tuple[Entry, int]:
    """Return the convolutions, a norm, a product, the one for positions; and the rows they make.

    Raises:
        DocumentError: if the convolutions' lists differ in length, or leave no row.
    """
    width = fields.size("hidden_size")
    widths = fields.counts("conv_dim") or _WIDTHS
    strides, kernels = fields.counts("conv_stride") or _STRIDES, fields.counts("conv_kernel")
    kernels = kernels or _KERNELS
    if not len(widths) == len(strides) == len(kernels) or 0 in (*widths, *strides, *kernels):
        raise _uneven(fields, len(widths))
    bias, rows, read = fields.flag("conv_bias", False), _SAMPLES, 1
    products = []
    for outer, stride, kernel in zip(widths, strides, kernels, strict=True):
        rows = (rows - kernel) // stride + 1
        if rows < 1:
            raise _uneven(fields, len(widths))
        products.append(
            Product(inner_size=read * kernel, outer_size=outer, bias=bias, tokens_per_sequence=rows)
        )
        read = outer
    groups = fields.size("num_conv_pos_embedding_groups", 16)
    require_divides(fields.spelling("num_conv_pos_embedding_groups"), groups, "hidden_size", width)
    kernel = fields.size("num_conv_pos_embeddings", 128)
    projection = Product(inner_size=read, outer_size=width, bias=True)
    positions = Product(inner_size=width // groups * kernel, outer_size=width, bias=True)
    masks = fields.chance("mask_time_prob", _MASK_RATIO) or fields.chance("mask_feature_prob", 0.0)
    every = fields.text("feat_extract_norm") == "layer"
    projected = (read,) if fields.flag("feat_proj_layer_norm", True) else ()
    return Entry(
        products=(*products, projection, positions),
        norm_widths=(
            *(widths if every else widths[:1]),
            *projected,
            *((width,) if ends_with_norm else ()),
        ),
        table_elements=kernel + (width if masks else 0),  # the convolution's norms, a masked row
    ), rows


def _uneven(fields: Fields, count: int) -> DocumentError:
    return DocumentError(
        "must be lists of one length, whose convolutions leave a row of 30 s",
        field=fields.spelling("conv_dim"),
        value=f"{count} entries",
        remedy="give conv_dim, conv_stride and conv_kernel an entry for each convolution",
    )


def _unread(fields: Fields, name: str, value: object) -> UnsupportedModelError:
    return UnsupportedModelError(
        "cannot be priced",
        field=fields.spelling(name),
        value=value,
        remedy="trace the model with `meshwright trace --transformers config.json`",
    )
