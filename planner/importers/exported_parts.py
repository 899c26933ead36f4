"""Parts of an exported program: what operators of one block do, as a trace would have found it.

Products and attention by their sizes; views nothing; any other operator reads its tensors and
writes its outputs. Kept for backward is what the derivative of each kind of operator needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from planner.importers.exported_tensors import Tensors
from planner.schema.measured import (
    MeasuredAttention,
    MeasuredPart,
    MeasuredProduct,
    SavedForBackward,
)

_WORDS = {
    "views": """
        view reshape transpose permute unsqueeze squeeze expand slice select split split_with_sizes
        chunk unflatten flatten contiguous detach alias t unbind dropout _unsafe_view as_strided
        expand_as view_as narrow lift_fresh_copy _assert_tensor_metadata
    """,
    "keep inputs": "mul div pow silu gelu where rms_norm layer_norm group_norm",
    "keep nothing": """
        add sub rsub neg cat stack sum mean to _to_copy clone copy arange zeros ones full eq ne lt
        gt le ge logical_and logical_or bitwise_and triu tril masked_fill zeros_like ones_like empty
        cos sin
    """,
    "convolutions": "conv1d conv2d conv3d convolution",
    "products": "mm bmm matmul addmm baddbmm",
}
_KINDS = {name: frozenset(words.split()) for name, words in _WORDS.items()}
_LINEAR, _ATTENTION = "linear", "scaled_dot_product_attention"
_LOG_SUM_BYTES = 4


@dataclass(slots=True)
class Part:
    """The nodes of a block or of an end, as they come."""

    nodes: list[Mapping[str, Any]] = field(default_factory=list)


@dataclass(slots=True)
class _Sums:
    """What has been found so far; `kept` are tensors that backward needs, by the root of views."""

    products: list[tuple[int, int, int, str]] = field(default_factory=list)
    attention: MeasuredAttention | None = None
    elementwise: int = 0
    kernels: int = 0
    kept: set[str] = field(default_factory=set)
    kept_selective: set[str] = field(default_factory=set)
    kept_bytes: int = 0
    roots: dict[str, str] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)
    parameters: set[str] = field(default_factory=set)
    entering: dict[str, None] = field(default_factory=dict)
    last: str = ""


def measured(part: Part, tensors: Tensors, *, tokens: int, sequence: int) -> MeasuredPart:
    """Return what the part asks per token."""
    sums = _Sums()
    for node in part.nodes:
        _account(sums, node, tensors, sequence)
    for _, _, _, output in sums.products[::2]:
        sums.kept_selective.add(_root(sums, output))
    enters = max((tensors.numel(name) for name in sums.entering), default=tokens)
    leaves = tensors.numel(sums.last) if sums.last else enters
    flop = sum(rows * inner * outer for rows, inner, outer, _ in sums.products)
    saved = sum(rows * inner * outer for rows, inner, outer, _ in sums.products[::2])
    return MeasuredPart(
        parameter_count=sum(tensors.numel(name) for name in sums.parameters),
        products=tuple(
            MeasuredProduct(rows_per_token=rows / tokens, inner_size=inner, outer_size=outer)
            for rows, inner, outer, _ in sums.products
        ),
        attention=sums.attention,
        elementwise_elements_per_token=sums.elementwise / tokens,
        kernel_count=sums.kernels,
        saved=_saved(sums.kept, sums.kept_bytes, tensors, tokens),
        saved_selective=_saved(
            {*sums.kept_selective, *(_root(sums, name) for name in sums.entering)},
            0,
            tensors,
            tokens,
        ),
        selective_recompute_ratio=1.0 - saved / flop if flop else 0.0,
        input_size=max(enters // tokens, 1),
        output_size=max(leaves // tokens, 1),
    )


def _saved(names: set[str], more: int, tensors: Tensors, tokens: int) -> SavedForBackward:
    own = [name for name in names if name in tensors and name not in tensors.parameters]
    floating = sum(tensors.numel(name) for name in own if tensors.is_floating(name))
    others = sum(
        tensors.numel(name) * tensors.element_bytes(name)
        for name in own
        if not tensors.is_floating(name)
    )
    return SavedForBackward(
        elements_per_token=floating / tokens, bytes_per_token=(others + more) / tokens
    )


def _account(sums: _Sums, node: Mapping[str, Any], tensors: Tensors, sequence: int) -> None:
    kind = _kind(node)
    inputs = [name for name in _tensors_of(node["inputs"], key="arg") if name in tensors]
    outputs = [name for name in _tensors_of(node["outputs"], key=None) if name in tensors]
    _enter(sums, inputs, outputs, tensors)
    if not outputs:
        return
    sums.last = outputs[0]
    if kind in _KINDS["views"]:
        for name in outputs:
            sums.roots[name] = _root(sums, inputs[0]) if inputs else name
    elif kind == _ATTENTION:
        _attend(sums, node, inputs, outputs[0], tensors, sequence)
    else:
        _compute(sums, kind, inputs, outputs, tensors)


def _enter(sums: _Sums, inputs: list[str], outputs: list[str], tensors: Tensors) -> None:
    """Take note of parameters, and of what was made outside the part."""
    for name in inputs:
        if name in tensors.parameters:
            sums.parameters.add(name)
        elif name not in sums.made and tensors.is_floating(name):
            sums.entering[name] = None
    sums.made.update(outputs)


def _compute(  # noqa: PLR0917  (what an operator is)
    sums: _Sums, kind: str, inputs: list[str], outputs: list[str], tensors: Tensors
) -> None:
    product = _product(kind, inputs, outputs[0], tensors)
    if product is not None:
        sums.products.append((*product, outputs[0]))
        sums.kept.update(_root(sums, name) for name in inputs[:3])
        return
    sums.kernels += 1
    sums.elementwise += sum(tensors.numel(name) for name in (*inputs, *outputs))
    sums.kept.update(_root(sums, name) for name in _needed(kind, inputs, outputs))


def _needed(kind: str, inputs: list[str], outputs: list[str]) -> list[str]:
    """Return what an operator's derivative needs; of an unknown one its output is assumed."""
    if kind in _KINDS["keep inputs"]:
        return inputs
    if kind == "embedding":
        return inputs[1:]
    return [] if kind in _KINDS["keep nothing"] else outputs


def _product(
    kind: str, inputs: list[str], output: str, tensors: Tensors
) -> tuple[int, int, int] | None:
    """Return rows, inner and outer size of a matrix product or convolution, None for others."""
    made = tensors.sizes(output)
    if kind == _LINEAR:
        outer, inner = tensors.sizes(inputs[1])
        return max(tensors.numel(output) // outer, 1), inner, outer
    if kind in _KINDS["convolutions"]:
        weight = tensors.sizes(inputs[1])
        inner = tensors.numel(inputs[1]) // weight[0]
        return max(tensors.numel(output) // weight[0], 1), inner, weight[0]
    if kind in _KINDS["products"] and made:
        first = inputs[1] if kind in {"addmm", "baddbmm"} else inputs[0]
        inner = tensors.sizes(first)[-1]
        return max(tensors.numel(output) // made[-1], 1), inner, made[-1]
    return None


def _attend(  # noqa: PLR0917  (what an operator is)
    sums: _Sums,
    node: Mapping[str, Any],
    inputs: list[str],
    output: str,
    tensors: Tensors,
    sequence: int,
) -> None:
    """Take in fused attention: a sequence to itself as such, any other as two products."""
    query, key, value = (tensors.sizes(name) for name in inputs[:3])
    rows = tensors.numel(output) // value[-1]
    if query[-2] == key[-2] == sequence and sums.attention is None:
        sums.attention = MeasuredAttention(
            head_count=query[-3],
            key_head_size=query[-1],
            value_head_size=value[-1],
            key_value_width=key[-3] * key[-1] + value[-3] * value[-1],
            causal=_flag(node, "is_causal"),
        )
        sums.kept_selective.add(output)
    else:
        sums.products.append((rows, query[-1], key[-2], output))
        sums.products.append((rows, key[-2], value[-1], output))
    sums.kept.update(_root(sums, name) for name in (*inputs[:3], output))
    sums.kept_bytes += rows * _LOG_SUM_BYTES


def _flag(node: Mapping[str, Any], name: str) -> bool:
    return any(
        given.get("name") == name and given["arg"].get("as_bool") is True
        for given in node["inputs"]
    )


def _root(sums: _Sums, name: str) -> str:
    return sums.roots.get(name, name)


def _kind(node: Mapping[str, Any]) -> str:
    """Return an operator's name without its library and overload."""
    words = str(node["target"]).split(".")
    if "ops" in words[:-2]:
        return words[words.index("ops") + 2]
    return words[-1]


def _tensors_of(arguments: Any, *, key: str | None) -> Iterator[str]:
    for argument in arguments:
        value = argument[key] if key is not None else argument
        if "as_tensor" in value:
            yield value["as_tensor"]["name"]
        for item in value.get("as_tensors") or ():
            yield item["name"]
