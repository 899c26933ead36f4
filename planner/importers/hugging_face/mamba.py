"""Decoders of Hugging Face of Mamba layers: mamba, falcon_mamba, mamba2, and jamba with attention.

Each reader states the defaults of its configuration class (`configuration_<type>.py` of
transformers 5.23). Nothing bounds the length of a sequence but in jamba.
"""

from __future__ import annotations

from collections.abc import Callable

from planner.errors import DocumentError
from planner.importers.fields import Fields, require_divides
from planner.importers.hugging_face.attention import grouped_query, layer_count
from planner.importers.hugging_face.decoder import rotary_decoder
from planner.importers.hugging_face.mixture import routed_experts
from planner.schema.model import (
    Block,
    DenseFeedForward,
    FeedForward,
    ModelGraph,
    NoAttention,
    NoFeedForward,
    SelectiveScanMixer,
    StateSpaceMixer,
)

JAMBA_ALIASES = {"num_local_experts": "num_experts"}

SCAN_UNMEASURED = "selective scans are priced by what they move in memory; none was measured"

_UNBOUNDED = 2**20
_WIDTH_OVER_STEP_RANK = 16
_ATTENTION_PERIOD, _ATTENTION_OFFSET = 8, 4
_EXPERT_PERIOD, _EXPERT_OFFSET = 2, 1


def mamba(fields: Fields, name: str) -> ModelGraph:
    """Return a mamba of the first generation, tied; falcon_mamba's norms inside have no weights.

    Its class believes an `intermediate_size` rather than `expand`, in which released files differ.
    """
    expanded = fields.size("expand", 2) * fields.size("hidden_size")
    mixer = SelectiveScanMixer(
        inner_width=fields.size("intermediate_size", expanded),
        state_size=fields.size("state_size", 16),
        step_rank=_step_rank(fields, "time_step_rank"),
        convolution_width=fields.size("conv_kernel", 4),
        convolution_bias=fields.flag("use_conv_bias", True),
        bias=fields.flag("use_bias", False),
    )
    block = Block(attention=NoAttention(), mixer=mixer, feed_forward=NoFeedForward())
    blocks = (block,) * layer_count(fields)
    graph = rotary_decoder(fields, name, blocks, positions=_UNBOUNDED, tied=True)
    return graph.model_copy(update={"assumptions": (SCAN_UNMEASURED,)})


def mamba2(fields: Fields, name: str) -> ModelGraph:
    """Return a mamba2.

    Raises:
        DocumentError: if heads and their size do not make up the inner width, or groups the heads.
    """
    heads, groups = fields.size("num_heads", 128), fields.size("n_groups", 8)
    size = fields.size("head_dim", 64)
    width = fields.size("expand", 2) * fields.size("hidden_size")
    require_divides(fields.spelling("n_groups"), groups, fields.spelling("num_heads"), heads)
    if heads * size != width:
        raise DocumentError(
            f"x num_heads {heads} must be hidden_size x expand, {width}",
            field=fields.spelling("head_dim"),
            value=size,
            remedy="change one of the four",
        )
    bias = fields.flag("use_bias", False)
    mixer = StateSpaceMixer(
        head_count=heads,
        head_size=size,
        group_count=groups,
        state_size=fields.size("state_size", 128),
        convolution_width=fields.size("conv_kernel", 4),
        chunk_tokens=fields.size("chunk_size", 256),
        convolution_bias=fields.flag("use_conv_bias", True),
        input_bias=bias,
        output_bias=bias,
    )
    block = Block(attention=NoAttention(), mixer=mixer, feed_forward=NoFeedForward())
    return rotary_decoder(fields, name, (block,) * layer_count(fields), positions=_UNBOUNDED)


def jamba(fields: Fields, name: str) -> ModelGraph:
    """Return a jamba: a layer of eight attends, the others scan; every second routes."""
    attention = grouped_query(fields, key_value_heads=8).model_copy(update={"rotary": False})
    mixer = SelectiveScanMixer(
        inner_width=fields.size("mamba_expand", 2) * fields.size("hidden_size"),
        state_size=fields.size("mamba_d_state", 16),
        step_rank=_step_rank(fields, "mamba_dt_rank"),
        convolution_width=fields.size("mamba_d_conv", 4),
        convolution_bias=fields.flag("mamba_conv_bias", True),
        bias=fields.flag("mamba_proj_bias", False),
        normed_rows=True,
    )
    attends = _every(fields, "attn_layer", _ATTENTION_PERIOD, _ATTENTION_OFFSET)
    routes = _every(fields, "expert_layer", _EXPERT_PERIOD, _EXPERT_OFFSET)
    dense: FeedForward = DenseFeedForward(ffn_size=fields.size("intermediate_size"))
    experts: FeedForward = dense
    if fields.size("num_experts", 16) > 1:
        experts = routed_experts(
            fields,
            expert_count=("num_experts", 16),
            experts_per_token=2,
            expert_ffn_size=fields.size("intermediate_size"),
        )
    blocks = [
        Block(
            attention=attention if attends(index) else NoAttention(),
            mixer=None if attends(index) else mixer,
            feed_forward=experts if routes(index) else dense,
        )
        for index in range(layer_count(fields))
    ]
    graph = rotary_decoder(fields, name, blocks, positions=262_144)
    return graph.model_copy(update={"assumptions": (SCAN_UNMEASURED,)})


def _every(fields: Fields, what: str, period: int, offset: int) -> Callable[[int], bool]:
    """Return which layers are those at `<what>_offset` of each `<what>_period`.

    Raises:
        DocumentError: if the offset is not within the period.
    """
    period = fields.size(f"{what}_period", period)
    offset = fields.size(f"{what}_offset", offset, minimum=0)
    if offset >= period:
        raise DocumentError(
            f"must be less than {what}_period {period}",
            field=fields.spelling(f"{what}_offset"),
            value=offset,
            remedy=f"use at most {period - 1}",
        )
    return lambda index: index % period == offset


def _step_rank(fields: Fields, field: str) -> int:
    """Return the width of the row that steps come of: a sixteenth of the model unless told."""
    automatic = -(-fields.size("hidden_size") // _WIDTH_OVER_STEP_RANK)
    return automatic if fields.text(field) == "auto" else fields.size(field, automatic)
