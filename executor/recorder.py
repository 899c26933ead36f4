"""Recorder: what a forward does, operator by operator, and which part of the model does it.

Matrix products and convolutions are recorded as rows x inner x outer, fused attention by its
shape, and of all other kernels the elements that they read and write. Parts are told apart by hooks
on the blocks: all before the first block is the embedding's, all after a block, but for another
block, the head's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from executor.declared_sizes import DeclaredSizes

EMBEDDING, HEAD = -1, -2

_ATEN = torch.ops.aten
MATRIX_PRODUCTS = frozenset({_ATEN.mm.default, _ATEN.addmm.default})
_BATCHED_PRODUCTS = {_ATEN.bmm.default, _ATEN.baddbmm.default}
_GROUPED_PRODUCTS = {_ATEN._grouped_mm.default}  # noqa: SLF001 - a public operator's name
_GROUPED_DIMENSIONS = 3  # a matrix for each group
_CONVOLUTIONS = {_ATEN.convolution.default}
ATTENTIONS = frozenset(
    getattr(_ATEN, f"_scaled_dot_product_{kind}").default
    for kind in (
        "flash_attention_for_cpu",
        "flash_attention",
        "efficient_attention",
        "cudnn_attention",
    )
)
_MADE_OF_NOTHING = {_ATEN.empty.memory_format, _ATEN.detach.default}


@dataclass(frozen=True, slots=True)
class RecordedProduct:
    """`rows` rows of `inner` elements became rows of `outer`; `kept` ones selective saves."""

    rows: int
    inner: int
    outer: int
    is_matrix_product: bool

    @property
    def flop(self) -> int:
        """Return its forward FLOPs."""
        return 2 * self.rows * self.inner * self.outer


@dataclass(frozen=True, slots=True)
class RecordedAttention:
    """Fused attention: sequences, heads, queries and keys of a sequence, and sizes of a head."""

    batch: int
    heads: int
    key_value_heads: int
    queries: int
    keys: int
    key_size: int
    value_size: int
    causal: bool

    @property
    def flop(self) -> int:
        """Return its forward FLOPs as torch counts them, masked pairs included."""
        pairs = self.batch * self.heads * self.queries * self.keys
        return 2 * pairs * (self.key_size + self.value_size)


@dataclass(slots=True)
class SavedBytes:
    """Bytes that are kept, by number format."""

    by_dtype: dict[torch.dtype, int] = field(default_factory=dict)

    def add(self, tensor: torch.Tensor) -> None:
        """Count the whole storage of `tensor`."""
        known = self.by_dtype.get(tensor.dtype, 0)
        self.by_dtype[tensor.dtype] = known + tensor.untyped_storage().nbytes()

    @property
    def total(self) -> int:
        """Return all bytes."""
        return sum(self.by_dtype.values())


@dataclass(slots=True)
class PartRecord:
    """What one part of the model did and keeps."""

    products: list[RecordedProduct] = field(default_factory=list)
    attentions: list[RecordedAttention] = field(default_factory=list)
    moved_elements: int = 0
    kernel_count: int = 0
    saved: SavedBytes = field(default_factory=SavedBytes)
    saved_selective: SavedBytes = field(default_factory=SavedBytes)
    input_elements: int = 0
    output_elements: int = 0


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records a forward of `model` whose `blocks` are called one after another."""

    def __init__(
        self, model: nn.Module, blocks: Sequence[nn.Module], sizes: DeclaredSizes | None = None
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._sizes = sizes or DeclaredSizes()
        self.parts: dict[int, PartRecord] = {EMBEDDING: PartRecord(), HEAD: PartRecord()}
        self.calls: list[int] = []
        self.first_users: dict[int, int] = {}
        self._current = EMBEDDING
        self.blocks = blocks
        self._held = [*model.parameters(), *model.buffers()]
        # Storages are told apart by address, and so all that were seen are kept alive.
        self._known = {storage_address(tensor) for tensor in self._held}
        self._parameters = {storage_address(tensor) for tensor in model.parameters()}
        self._matrix_product_count = 0

    def run(self, forward: Callable[[], Any]) -> Any:
        """Return what `forward` returns, having recorded it."""
        handles = []
        for index, block in enumerate(self.blocks):
            self.parts[index] = PartRecord()
            enter, leave = _Enter(self, index), _Leave(self, index)
            handles.append(block.register_forward_pre_hook(enter, with_kwargs=True))
            handles.append(block.register_forward_hook(leave))
        try:
            with saved_tensors_hooks(self._pack, lambda packed: packed), self:
                return forward()
        finally:
            for handle in handles:
                handle.remove()

    def enter(self, index: int, inputs: tuple[Any, ...]) -> None:
        """Note that block `index` begins."""
        self.calls.append(index)
        self._current = index
        self._matrix_product_count = 0
        record = self.parts[index]
        record.input_elements = _elements(inputs)
        for tensor in _tensors(inputs)[:1]:
            record.saved_selective.add(tensor)

    def leave(self, index: int, output: Any) -> None:
        """Note that block `index` ends."""
        self.parts[index].output_elements = _elements(output)
        self._current = HEAD

    def __torch_dispatch__(
        self,
        operator: Any,
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run `operator` and record it."""
        result = self._sizes.run(operator, args, kwargs or {})
        record = self.parts[self._current]
        for address in self._parameters.intersection(map(storage_address, _tensors(args))):
            self.first_users.setdefault(address, self._current)
        products = recorded_products(operator, args, result)
        if products:
            record.products += products
        elif operator in ATTENTIONS:
            record.attentions.append(_attention(args, kwargs or {}))
        elif not _is_view(operator):
            record.moved_elements += _elements((args, kwargs)) + _elements(result)
            record.kernel_count += 1
        self._keep_selected(operator, record, result)
        return result

    def _keep_selected(self, operator: Any, record: PartRecord, result: Any) -> None:
        """Count what the executor's selective checkpointing keeps of a block."""
        if operator in MATRIX_PRODUCTS:
            self._matrix_product_count += 1
        kept = operator in MATRIX_PRODUCTS and self._matrix_product_count % 2 == 1
        if kept or operator in ATTENTIONS:
            for tensor in _tensors(result):
                record.saved_selective.add(tensor)

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor:
        address = storage_address(tensor)
        if address not in self._known:
            self._known.add(address)
            self._held.append(tensor)
            self.parts[self._current].saved.add(tensor)
        return tensor


def recorded_products(operator: Any, args: tuple[Any, ...], result: Any) -> list[RecordedProduct]:
    """Return the products that `operator` is made of, none if it is no product."""
    if operator in MATRIX_PRODUCTS:
        left, right = args[-2:]
        return [RecordedProduct(left.shape[0], left.shape[1], right.shape[1], True)]
    if operator in _BATCHED_PRODUCTS:
        left, right = args[-2:]
        rows = left.shape[0] * left.shape[1]
        return [RecordedProduct(rows, left.shape[2], right.shape[2], False)]
    if operator in _GROUPED_PRODUCTS and args[1].dim() == _GROUPED_DIMENSIONS:
        rows, inner = args[0].shape  # of all groups, one after another
        return [RecordedProduct(rows, inner, args[1].shape[-1], False)]
    if operator in _CONVOLUTIONS:
        return [_convolution(args, result)]
    return []


def storage_address(tensor: torch.Tensor) -> int:
    """Return what tells the storage of `tensor` from others while it lives."""
    return int(tensor.untyped_storage()._cdata)  # noqa: SLF001 - a storage's identity


def _convolution(args: tuple[Any, ...], result: torch.Tensor) -> RecordedProduct:
    """Return a convolution as a product: its rows are output places, by group."""
    inputs, weight, transposed, groups = args[0], args[1], args[6], args[8]
    window = math.prod(weight.shape[2:])
    if transposed:
        rows = inputs.shape[0] * math.prod(inputs.shape[2:]) * groups
        return RecordedProduct(rows, weight.shape[0] // groups, weight.shape[1] * window, False)
    rows = result.shape[0] * math.prod(result.shape[2:]) * groups
    return RecordedProduct(rows, weight.shape[1] * window, weight.shape[0] // groups, False)


def _attention(args: tuple[Any, ...], named: dict[str, Any]) -> RecordedAttention:
    query, key, value = args[:3]
    causal = named.get("is_causal", any(item is True for item in args[3:]))
    return RecordedAttention(
        batch=query.shape[0],
        heads=query.shape[1],
        key_value_heads=key.shape[1],
        queries=query.shape[2],
        keys=key.shape[2],
        key_size=query.shape[3],
        value_size=value.shape[3],
        causal=bool(causal),
    )


class _Enter:
    def __init__(self, recorder: Recorder, index: int) -> None:
        self._recorder = recorder
        self._index = index

    def __call__(self, _module: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        self._recorder.enter(self._index, (*args, *named.values())[:1])


class _Leave:
    def __init__(self, recorder: Recorder, index: int) -> None:
        self._recorder = recorder
        self._index = index

    def __call__(self, _module: nn.Module, _args: tuple[Any, ...], output: Any) -> None:
        self._recorder.leave(self._index, output)


def _is_view(operator: Any) -> bool:
    """Return whether the operator only looks at, or makes, storage and moves no element."""
    if operator in _MADE_OF_NOTHING or not hasattr(operator, "_schema"):
        return True
    if operator.namespace == "prim":
        return True
    aliases = [item.alias_info for item in operator._schema.returns]  # noqa: SLF001
    return any(alias is not None and not alias.is_write for alias in aliases)


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _elements(value: Any) -> int:
    return sum(tensor.numel() for tensor in _tensors(value))
