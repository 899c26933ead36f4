"""Tracing: any module becomes a model graph that the planner takes.

    graph = meshwright.trace(build_model, (tokens,))

The module is built and run forward once on fake tensors, which have shapes and no storage: models
larger than the machine are traced in seconds. Parameters, FLOPs and bytes kept for backward are
what torch itself counts. The first input has the samples in front; where it is whole numbers
[samples, tokens] quantities are per token, else a sample counts as one token.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map

from executor.declared_sizes import DeclaredSizes
from executor.errors import ModelMismatchError
from executor.models.declaration import part
from executor.models.decoder import kept_angles
from executor.recorder import (
    EMBEDDING,
    HEAD,
    PartRecord,
    RecordedAttention,
    Recorder,
    storage_address,
)
from planner.schema.measured import (
    MeasuredAttention,
    MeasuredPart,
    MeasuredProduct,
    SavedForBackward,
)
from planner.schema.model import BlockRun, ModelGraph

_FAILURES = (  # what code that looks at values, or gets inputs that do not fit, raises
    RuntimeError,
    TypeError,
    ValueError,
    NotImplementedError,
    AttributeError,
    LookupError,
    AssertionError,
    ImportError,
)
_NAMED = 3  # modules that an assumption names at most
_WORTH_NAMING = 0.01  # of all parameters
_PACKED = "find_packed_sequence_indices"
Builder = Callable[[], nn.Module]
ExampleInputs = Sequence[Any] | Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A model graph and the whole forward's counts behind it, for the traced batch."""

    graph: ModelGraph
    parameter_count: int
    forward_flop: int
    saved_bytes: int
    tokens: int


def trace(
    build_model: Builder,
    example_inputs: ExampleInputs,
    *,
    blocks: str | None = None,
    name: str | None = None,
    sizes: Mapping[str, int] | None = None,
) -> ModelGraph:
    """Return the model graph of what `build_model` builds, run on inputs like `example_inputs`.

    These are forward's arguments in order, or a mapping of them by name; any may be nested.
    `blocks` is the path of the list of blocks; left out, the list that holds most parameters.
    `sizes` declares what operators yield whose results depend on values, by patterns of modules'
    paths: {"layers.*.experts": 12} where each of the experts gets twelve rows.

    Raises:
        ModelMismatchError: if the module cannot be built or run on fake tensors.
    """
    return traced(build_model, example_inputs, blocks=blocks, name=name, sizes=sizes).graph


def traced(
    build_model: Builder,
    example_inputs: ExampleInputs,
    *,
    blocks: str | None = None,
    name: str | None = None,
    sizes: Mapping[str, int] | None = None,
    training: bool = True,
) -> Trace:
    """Return the same with the counts of the whole forward, run as in training unless told.

    Raises:
        ModelMismatchError: if the module cannot be built or run on fake tensors.
    """
    samples, tokens = _extent(example_inputs)
    declared = DeclaredSizes(sizes)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode, _no_angles_shared(), _no_packed_sequences():
        model = _built(build_model).train(training)
        listed = _blocks(model, blocks)
        inputs = tree_map(lambda item: _fake(mode, item), example_inputs)
        recorder = Recorder(model, listed, declared)
        output = _ran(model, recorder, inputs, declared)
        if recorder.calls != list(range(len(listed))):
            _check_found(blocks, recorder.calls)
            recorder = Recorder(model, [], declared)
            output = _ran(model, recorder, inputs, declared)
    reading = _Reading(
        model=model,
        recorder=recorder,
        outputs=_output_elements(output),
        samples=samples,
        tokens_per_sample=tokens,
        declared=declared.assumptions(),
    )
    return Trace(
        graph=reading.graph(name or type(model).__qualname__),
        parameter_count=sum(parameter.numel() for parameter in model.parameters()),
        forward_flop=sum(_flop(record) for record in recorder.parts.values()),
        saved_bytes=sum(record.saved.total for record in recorder.parts.values()),
        tokens=samples * tokens,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """A recorded model, and the samples and tokens that its quantities are divided by."""

    model: nn.Module
    recorder: Recorder
    outputs: int
    samples: int
    tokens_per_sample: int
    declared: tuple[str, ...]

    @property
    def has_blocks(self) -> bool:
        return len(self.recorder.parts) > 2  # the embedding and the head are always there

    @property
    def tokens(self) -> int:
        return self.samples * self.tokens_per_sample

    def graph(self, name: str) -> ModelGraph:
        """Return the model graph."""
        owners = self._parameter_counts()
        if self.has_blocks:
            measured = [self._part(i, owners[i]) for i in range(len(owners) - 2)]
            ends = (self._part(EMBEDDING, owners[EMBEDDING]), self._part(HEAD, owners[HEAD]))
        else:
            whole = self.recorder.parts[EMBEDDING]
            whole.output_elements = self.outputs
            measured = [self._part(EMBEDDING, owners[EMBEDDING])]
            ends = (MeasuredPart(parameter_count=0), MeasuredPart(parameter_count=0))
        return ModelGraph(
            name=name,
            architecture="traced",
            hidden_size=measured[0].input_size,
            vocabulary_size=self._per_token_ceiling(self.outputs),
            tied_embeddings=self._is_tied(),
            maximum_sequence_length=self.tokens_per_sample,
            runs=_runs(measured),
            assumptions=self._assumptions(),
            measured_embedding=ends[0],
            measured_head=ends[1],
        )

    def _part(self, index: int, parameter_count: int) -> MeasuredPart:
        record = self.recorder.parts[index]
        core, loose = self._attention(record.attentions)
        kept = [item for item in record.products if item.is_matrix_product][::2]
        flop = sum(item.flop for item in record.products)
        products = [(item.rows, item.inner, item.outer) for item in record.products]
        products += [piece for item in loose for piece in _as_products(item)]
        return MeasuredPart(
            parameter_count=parameter_count,
            products=tuple(
                MeasuredProduct(
                    rows_per_token=rows / self.tokens, inner_size=inner, outer_size=outer
                )
                for rows, inner, outer in products
            ),
            attention=core,
            elementwise_elements_per_token=record.moved_elements / self.tokens,
            kernel_count=record.kernel_count,
            saved=self._saved(record.saved.by_dtype),
            saved_selective=self._saved(record.saved_selective.by_dtype),
            selective_recompute_ratio=(
                1.0 - sum(item.flop for item in kept) / flop if flop else 0.0
            ),
            input_size=self._per_token_ceiling(record.input_elements),
            output_size=self._per_token_ceiling(record.output_elements),
        )

    def _saved(self, by_dtype: dict[torch.dtype, int]) -> SavedForBackward:
        """Return elements of the model's own format, and the bytes of all others."""
        own = self._dtype()
        others = sum(size for dtype, size in by_dtype.items() if dtype is not own)
        return SavedForBackward(
            elements_per_token=by_dtype.get(own, 0) / own.itemsize / self.tokens,
            bytes_per_token=others / self.tokens,
        )

    def _attention(
        self, recorded: list[RecordedAttention]
    ) -> tuple[MeasuredAttention | None, list[RecordedAttention]]:
        """Return attention of whole sequences to themselves as one core, and what is left of it."""
        first = next((item for item in recorded if self._is_own(item)), None)
        if first is None:
            return None, recorded
        shape = (first.key_size, first.value_size, first.causal)
        alike = [
            item
            for item in recorded
            if self._is_own(item) and (item.key_size, item.value_size, item.causal) == shape
        ]
        width = first.key_size + first.value_size
        core = MeasuredAttention(
            head_count=sum(item.heads for item in alike),
            key_head_size=first.key_size,
            value_head_size=first.value_size,
            key_value_width=sum(item.key_value_heads * width for item in alike),
            causal=first.causal,
        )
        return core, [item for item in recorded if item not in alike]

    def _is_own(self, item: RecordedAttention) -> bool:
        tokens = self.tokens_per_sample
        return (item.batch, item.queries, item.keys) == (self.samples, tokens, tokens)

    def _parameter_counts(self) -> dict[int, int]:
        """Return how many parameters each part has; shared ones are those of the first to use them.

        What forward never uses is held with the embedding.
        """
        counts = dict.fromkeys(self.recorder.parts, 0)
        for parameter in self.model.parameters():
            user = self.recorder.first_users.get(storage_address(parameter), EMBEDDING)
            counts[user] += parameter.numel()
        return counts

    def _is_tied(self) -> bool:
        """Return whether an embedding's weight serves again as a linear's."""
        tables = {id(m.weight) for m in self.model.modules() if isinstance(m, nn.Embedding)}
        linears = {id(m.weight) for m in self.model.modules() if isinstance(m, nn.Linear)}
        return self.has_blocks and bool(tables & linears)

    def _dtype(self) -> torch.dtype:
        floating = [p for p in self.model.parameters() if p.is_floating_point()]
        return max(floating, key=lambda p: p.numel()).dtype if floating else torch.float32

    def _per_token_ceiling(self, elements: int) -> int:
        return max(math.ceil(elements / self.tokens), 1)

    def _assumptions(self) -> tuple[str, ...]:
        extent = f"{self.samples} samples of {self.tokens_per_sample} tokens"
        said = [f"traced with {extent}: products and kept rows grow with tokens"]
        if not self.has_blocks:
            said.append("no list of blocks was found, so that nothing can be cut or checkpointed")
        said += [*self._other_lists(), *self._unused()]
        return (*said, *self._unrecognised(), *self.declared)

    def _other_lists(self) -> list[str]:
        """Return what is said of further lists of equal modules, as towers have them."""
        if not self.has_blocks:
            return []
        cut = self.recorder.blocks
        inside = {id(part) for block in cut for part in block.modules()}
        least = _WORTH_NAMING * sum(parameter.numel() for parameter in self.model.parameters())
        named = [
            f"{path} ({len(found)})"
            for path, found in self.model.named_modules()
            if isinstance(found, nn.ModuleList)
            and len({type(item) for item in found}) == 1
            and len(found) > 1
            and id(found) not in inside
            and not any(item is cut[0] for item in found)
            and sum(parameter.numel() for parameter in found.parameters()) > least
        ]
        if not named:
            return []
        return [f"not cut into blocks: {', '.join(named[:_NAMED])}, priced with what is about them"]

    def _unused(self) -> list[str]:
        """Return what is said of parameters that forward did not use."""
        users = self.recorder.first_users
        idle: Counter[str] = Counter()
        for path, parameter in self.model.named_parameters():
            if storage_address(parameter) not in users:
                idle[".".join(path.split(".")[:2])] += parameter.numel()
        if not idle:
            return []
        names = ", ".join(name for name, _ in idle.most_common(_NAMED))
        return [f"{idle.total():,} parameters were not used by this forward: {names}"]

    def _unrecognised(self) -> list[str]:
        """Return what is said of blocks in which no attention of whole sequences was found."""
        parts = [part for index, part in self.recorder.parts.items() if index >= 0]
        without = sum(self._attention(part.attentions)[0] is None for part in parts)
        if not without or self.tokens_per_sample == 1:
            return []
        said = f"no fused attention of whole sequences was recognised in {without} of {len(parts)}"
        return [f"{said} blocks: what they have of it stands among their products"]


def _runs(measured: Sequence[MeasuredPart]) -> tuple[BlockRun, ...]:
    """Return equal neighbours as runs."""
    runs: list[tuple[MeasuredPart, int]] = []
    for item in measured:
        if runs and runs[-1][0] == item:
            runs[-1] = (item, runs[-1][1] + 1)
        else:
            runs.append((item, 1))
    return tuple(BlockRun(measured=item, block_count=count) for item, count in runs)


def _as_products(item: RecordedAttention) -> list[tuple[int, int, int]]:
    """Return attention that is none of whole sequences as the two products that it is."""
    rows = item.batch * item.heads * item.queries
    return [(rows, item.key_size, item.keys), (rows, item.keys, item.value_size)]


def _extent(example_inputs: ExampleInputs) -> tuple[int, int]:
    """Return the samples of the first input, and the tokens of each."""
    leaves = tree_leaves(example_inputs)
    first = next((item for item in leaves if isinstance(item, torch.Tensor)), None)
    if first is None or first.dim() == 0 or first.numel() == 0:
        raise ModelMismatchError(
            "must begin with a tensor that has the samples in front",
            field="example_inputs",
            value=None if first is None else tuple(first.shape),
            remedy="give the inputs of one forward, such as (torch.zeros(2, 128, dtype=torch.long"
            "),)",
        )
    is_tokens = first.dim() > 1 and not first.is_floating_point()
    return first.shape[0], first.shape[1] if is_tokens else 1


def _built(build_model: Builder) -> nn.Module:
    try:
        model = build_model()
    except _FAILURES as error:
        raise _untraceable("build_model", error) from None
    if not isinstance(model, nn.Module):
        raise ModelMismatchError(
            "must return a torch.nn.Module",
            field="build_model",
            value=type(model).__qualname__,
            remedy="return the model itself",
        )
    return model


def _ran(model: nn.Module, recorder: Recorder, inputs: ExampleInputs, sizes: DeclaredSizes) -> Any:
    def forward() -> Any:
        return model(**inputs) if isinstance(inputs, Mapping) else model(*inputs)

    try:
        with sizes.of_modules(model):
            return recorder.run(forward)
    except _FAILURES as error:
        raise _untraceable("example_inputs", error) from None


def _check_found(asked: str | None, calls: list[int]) -> None:
    """Return if the blocks, which are not called one after another, were only guessed.

    Raises:
        ModelMismatchError: if the caller named them.
    """
    if asked is not None:
        raise ModelMismatchError(
            f"its items are not called once each, in order, but as {calls[:12]}",
            field="blocks",
            value=asked,
            remedy="name a list whose items forward calls one after another, or none",
        )


def _blocks(model: nn.Module, path: str | None) -> list[nn.Module]:
    """Return the items of the list at `path`, or of the one that holds most parameters.

    Raises:
        ModelMismatchError: if `path` leads to no list.
    """
    kinds = (nn.ModuleList, nn.Sequential, nn.ModuleDict)
    if path is None:
        lists = [m for m in model.modules() if isinstance(m, kinds) and len(m) > 1]
        sizes = [sum(p.numel() for p in m.parameters()) for m in lists]
        return list(lists[sizes.index(max(sizes))].children()) if lists else []
    found = part(model, path)
    if not isinstance(found, kinds):
        raise ModelMismatchError(
            "is not a ModuleList, ModuleDict or Sequential of the model",
            field="blocks",
            value=path,
            remedy="give the path of the list of blocks, as named_modules() has it",
        )
    return list(found.children())


@contextmanager
def _no_angles_shared() -> Iterator[None]:
    """Let the reference decoder compute its angles inside: its cache must hold no fake tensor."""
    kept_angles.cache_clear()
    try:
        yield
    finally:
        kept_angles.cache_clear()


@contextmanager
def _no_packed_sequences() -> Iterator[None]:
    """Let transformers take positions to run through each sequence, as they do unless one packs.

    It looks at their values, which fake tensors have none of, and would build a mask of all pairs.
    """
    masking = sys.modules.get("transformers.masking_utils")
    found = getattr(masking, _PACKED, None)
    if found is None:
        yield
        return
    setattr(masking, _PACKED, lambda _positions: None)
    try:
        yield
    finally:
        setattr(masking, _PACKED, found)


def _fake(mode: FakeTensorMode, item: Any) -> Any:
    return mode.from_tensor(item) if isinstance(item, torch.Tensor) else item


def _output_elements(output: Any) -> int:
    """Return the elements of the largest tensor of floating point that forward returns."""
    if not isinstance(output, torch.Tensor | tuple | list | dict):
        output = getattr(output, "__dict__", output)
    tensors = [leaf for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor)]
    return max((t.numel() for t in tensors if t.is_floating_point()), default=0)


def _flop(record: PartRecord) -> int:
    products = sum(item.flop for item in record.products)
    return products + sum(item.flop for item in record.attentions)


def _untraceable(field: str, error: Exception) -> ModelMismatchError:
    return ModelMismatchError(
        f"fails on fake tensors: {' '.join(str(error).split())[:300]}",
        field=field,
        value=type(error).__name__,
        remedy="let shapes depend on shapes alone: no .item(), no numpy, inputs that fit forward; "
        'or declare by sizes={"path.of.module": rows} what values would decide',
    )
