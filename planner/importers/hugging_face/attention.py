"""Attention fields of a Hugging Face configuration: heads, head size, window per layer."""

from __future__ import annotations

from collections.abc import Sequence

from planner.errors import DocumentError, UnsupportedModelError
from planner.importers.fields import LAYER_LIMIT, POSITION_LIMIT, Fields, require_divides
from planner.schema.model import GroupedQueryAttention, LatentAttention

Windows = Sequence[int | None]

_FULL, _SLIDING = "full_attention", "sliding_attention"
_ODD_WINDOWS = 2
_OLDER_KINDS = {"mamba": "linear_attention", "attention": _FULL}
_SHOWN_LENGTH = 80


def layer_count(fields: Fields, name: str = "num_hidden_layers") -> int:
    """Return the number of decoder layers."""
    return fields.size(name, limit=LAYER_LIMIT)


# Attention of BERT's, BART's and GPT-2's kin: biases everywhere, and no rotary positions.
BIASED = {"query_key_value_bias": True, "output_bias": True, "rotary": False}


def multi_head(
    fields: Fields, heads: str = "num_attention_heads", width: str = "hidden_size"
) -> GroupedQueryAttention:
    """Return attention whose heads divide the width, each with keys and values of its own."""
    count, hidden_size = fields.size(heads), fields.size(width)
    require_divides(fields.spelling(heads), count, fields.spelling(width), hidden_size)
    return GroupedQueryAttention(
        head_count=count, key_value_head_count=count, head_size=hidden_size // count
    )


def grouped_query(
    fields: Fields, *, key_value_heads: int | None = None, head_size: int | None = None
) -> GroupedQueryAttention:
    """Return attention without biases, norms or window, with Hugging Face's defaults.

    `key_value_heads` and `head_size` are the type's own defaults where it has them; else, and where
    the field is null, as many key-value heads as heads, and hidden_size / num_attention_heads.
    """
    hidden_size = fields.size("hidden_size")
    head_count = fields.size("num_attention_heads")
    absent = "num_key_value_heads" not in fields
    default = key_value_heads if absent and key_value_heads is not None else head_count
    key_value_head_count = fields.size("num_key_value_heads", default)
    heads_name = fields.spelling("num_attention_heads")
    require_divides(
        fields.spelling("num_key_value_heads"), key_value_head_count, heads_name, head_count
    )
    size = fields.optional_size("head_dim", head_size)
    if size is None:
        require_divides(heads_name, head_count, fields.spelling("hidden_size"), hidden_size)
        size = hidden_size // head_count
    return GroupedQueryAttention(
        head_count=head_count, key_value_head_count=key_value_head_count, head_size=size
    )


def require_as_wide_as_the_model(fields: Fields, attention: GroupedQueryAttention) -> None:
    """Raise unless the heads together are as wide as the model, for classes that take them to be.

    Raises:
        DocumentError: naming the head size.
    """
    width = fields.size("hidden_size")
    if attention.head_count * attention.head_size != width:
        raise DocumentError(
            f"must be {width}, the hidden_size, over num_attention_heads",
            field=fields.spelling("head_dim"),
            value=attention.head_size,
            remedy="change one of the three",
        )


def latent(fields: Fields) -> LatentAttention:
    """Return multi-head latent attention with the defaults that DeepSeek-V2 and V3 share."""
    return LatentAttention(
        head_count=fields.size("num_attention_heads"),
        query_rank=fields.optional_size("q_lora_rank", 1536),
        key_value_rank=fields.size("kv_lora_rank", 512),
        no_position_head_size=fields.size("qk_nope_head_dim", 128),
        rotary_head_size=fields.size("qk_rope_head_dim", 64),
        value_head_size=fields.size("v_head_dim", 128),
        bias=fields.flag("attention_bias", False),
    )


def uniform_windows(fields: Fields, default: int | None = None) -> Windows:
    """Return the same window for every layer: `sliding_window`, null for full attention."""
    window = fields.optional_size("sliding_window", default, limit=POSITION_LIMIT)
    return (window,) * layer_count(fields)


def switched_windows(fields: Fields) -> Windows:
    """Return the same window for every layer where `use_sliding_window` is on (qwen3_moe)."""
    return (_switched_window(fields),) * layer_count(fields)


def late_windows(fields: Fields, *, first_default: int = 28) -> Windows:
    """Return windows by `layer_types`, else for layers from `max_window_layers` on (qwen2, qwen3).

    Only where `use_sliding_window` is on.
    """
    first = fields.size("max_window_layers", first_default, minimum=0)
    slides = [index >= first for index in range(layer_count(fields))]
    return _typed_windows(fields, _switched_window(fields), slides)


def late_layers(fields: Fields, *, window: int, first: int) -> Windows:
    """Return windows by `layer_types`, else for layers from `max_window_layers` on (dots1).

    `window` and `first` are what the two fields are where they are absent.
    """
    begins = fields.size("max_window_layers", first, minimum=0)
    slides = [index >= begins for index in range(layer_count(fields))]
    given = fields.optional_size("sliding_window", window, limit=POSITION_LIMIT)
    return _typed_windows(fields, given, slides)


def alternate_windows(fields: Fields) -> Windows:
    """Return windows by `layer_types`, else for every second of the first layers (qwen2_moe).

    Only where `use_sliding_window` is on; the first layers are those before `max_window_layers`.
    """
    first_full = fields.size("max_window_layers", 28, minimum=0)
    slides = [
        index % _ODD_WINDOWS == 0 and index < first_full for index in range(layer_count(fields))
    ]
    return _typed_windows(fields, _switched_window(fields), slides)


def periodic_windows(fields: Fields, *, window: int | None, period: int) -> Windows:
    """Return windows by `layer_types`, else for all layers but every `period`th (gemma2, gpt_oss).

    `window` is what `sliding_window` says where it is absent.
    """
    slides = [(index + 1) % period != 0 for index in range(layer_count(fields))]
    given = fields.optional_size("sliding_window", window, limit=POSITION_LIMIT)
    return _typed_windows(fields, given, slides)


def _switched_window(fields: Fields) -> int | None:
    if not fields.flag("use_sliding_window", False):
        return None  # whatever the window says: the class writes 0 then
    return fields.optional_size("sliding_window", 4096, limit=POSITION_LIMIT)


def _typed_windows(fields: Fields, window: int | None, slides: Sequence[bool]) -> Windows:
    """Return `window` where `layer_types` says sliding, or where it is absent, where `slides`."""
    default = [_SLIDING if slide else _FULL for slide in slides]
    kinds = layer_kinds(fields, default, known=(_FULL, _SLIDING))
    return [window if kind == _SLIDING else None for kind in kinds]


def layer_kinds(
    fields: Fields, default: Sequence[str], *, known: Sequence[str], name: str = "layer_types"
) -> Sequence[str]:
    """Return the kind of each layer as `layer_types` names them, else `default`.

    Two older words are read as those that transformers writes since 5.0.

    Raises:
        UnsupportedModelError: if it names another number of layers, or a kind not `known`.
    """
    types = fields.texts(name)
    if types is None:
        return default
    if len(types) != len(default):
        raise UnsupportedModelError(
            f"must name each of the {len(default)} layers of num_hidden_layers",
            field=fields.spelling(name),
            value=f"{len(types)} entries",
            remedy=f"give one entry per layer, or leave {name} out",
        )
    kinds = [_OLDER_KINDS.get(kind, kind) for kind in types]
    for kind in kinds:
        if kind not in known:
            raise UnsupportedModelError(
                "is not a kind of layer that can be read",
                field=fields.spelling(name),
                value=kind[:_SHOWN_LENGTH],
                remedy=f"known kinds are {' and '.join(known)}",
            )
    return kinds
