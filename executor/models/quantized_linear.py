"""Quantized linear: a frozen linear of bitsandbytes, whose packed weight ranks can split (QLoRA).

bitsandbytes keeps a weight in 4 or 8 bits beside scales that no sharding knows of: `Linear4bit` and
`Linear8bitLt` of a script's model give way to this module. All that it holds is bytes, which ZeRO
gathers as they are, whatever the precision of the plan; each product gives bitsandbytes' own kernel
the weight and its scales. bitsandbytes is not imported: the model itself brings it.

A rank's part of a weight is multiplied in the largest blocks that have one scale each. In 8 bits
the inputs' rows are scaled by their largest element on any rank, as a whole row is.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_tensor,
)

from executor.errors import UnsupportedPlanError
from executor.models.quantization import (
    KERNEL_BLOCKS,
    LIBRARY,
    PARTS,
    Quantization,
    code_of_scales,
    functional,
    numbers_of,
    parts_of_8_bits,
)

_BITS = {"Linear4bit": 4, "Linear8bitLt": 8}
_NOT_TRAINED = {"Embedding4bit", "Embedding8bit", "OutlierAwareLinear"}


class QuantizedLinear(nn.Linear):
    """Rows [..., K] times a packed weight [N, K], which is not trained."""

    def __init__(
        self,
        quantization: Quantization,
        parts: Mapping[str, torch.Tensor],
        *,
        shape: tuple[int, int],
        bias: nn.Parameter | None,
    ) -> None:
        nn.Module.__init__(self)  # nn.Linear's own would make a weight of floating point
        self.out_features, self.in_features = shape
        self.quantization = quantization
        for name in PARTS:
            tensor = parts.get(name)
            own = None if tensor is None else nn.Parameter(tensor, requires_grad=False)
            self.register_parameter(name, own)
        self.register_parameter("bias", bias)

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - as nn.Linear has it
        """Return input W^T + b; of a rank's part of the weight, its part as a DTensor."""
        parts = {name: item for name in PARTS if (item := getattr(self, name)) is not None}
        weight, bias = parts["weight"], self.bias
        if not isinstance(weight, DTensor):
            how = self.quantization
            if how.bits == 4 and self.in_features % 2 == 0 and self.in_features % how.block_size:
                # bitsandbytes' product on CPUs takes each row to begin with a block.
                how, parts = how.of_part(
                    parts, columns=self.in_features, begins=(0, 0), holds_scales=False
                )
            return self._product(input, parts, bias=bias, how=how)
        mesh = weight.device_mesh
        how, local = self._of_rank(parts, mesh)
        assert isinstance(input, DTensor)  # noqa: S101 - the style that has split the weight
        if weight.placements == (Shard(0),):
            given = input.to_local(grad_placements=(Partial(),))
            rows = self._product(given, local, bias=None if bias is None else _local(bias), how=how)
            return DTensor.from_local(rows, mesh, (Shard(-1),), run_check=False)
        own = _local(bias) if bias is not None and mesh.get_local_rank() == 0 else None
        rows = self._product(input.to_local(), local, bias=own, how=how, mesh=mesh)
        return DTensor.from_local(rows, mesh, (Partial(),), run_check=False)

    def unpacked(self, parts: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the whole weight that `parts`, whole, stand for, in fp32."""
        return self.quantization.unpacked(parts, (self.out_features, self.in_features))

    def _of_rank(
        self, parts: Mapping[str, Any], mesh: DeviceMesh
    ) -> tuple[Quantization, dict[str, torch.Tensor]]:
        """Return this rank's part of the weight, and how it is packed."""
        local = {name: _local(item) for name, item in parts.items()}
        how = self.quantization
        if how.bits == 8:
            return how, local
        split = parts["weight"].placements[0]
        begins = [0, 0]
        size = self.in_features if split.dim else self.out_features
        begins[split.dim] = mesh.get_local_rank() * (size // mesh.size())
        return how.of_part(
            local,
            columns=self.in_features,
            begins=(begins[0], begins[1]),
            holds_scales=parts["scales"].placements == (split,),
        )

    def _product(
        self,
        given: torch.Tensor,
        parts: Mapping[str, torch.Tensor],
        *,
        bias: torch.Tensor | None,
        how: Quantization,
        mesh: DeviceMesh | None = None,
    ) -> torch.Tensor:
        """Return the rows of `given` times a weight; over `mesh` its columns are split."""
        if how.bits == 8:
            return self._product_in_8_bits(given, parts, bias, mesh)
        weight, wide = parts["weight"], given.to(how.compute_dtype or given.dtype)
        own = None if bias is None else bias.to(wide.dtype)
        is_in_rows = self.in_features % 2 == 0
        shape = (len(weight) if is_in_rows else self.out_features, given.shape[-1])
        if how.block_size not in KERNEL_BLOCKS:
            scales = parts["scales"]
            rows = _SmallBlocks.apply(wide, weight, scales, how, shape)  # type: ignore[no-untyped-call]
            return (rows if own is None else rows + own).to(given.dtype)  # type: ignore[no-any-return]
        library, state = sys.modules[LIBRARY], how.state(parts, shape)
        rows = library.matmul_4bit(wide, weight.view(-1, 1), quant_state=state, bias=own)
        return rows.to(given.dtype)  # type: ignore[no-any-return]

    def _product_in_8_bits(
        self,
        given: torch.Tensor,
        parts: Mapping[str, torch.Tensor],
        bias: torch.Tensor | None,
        mesh: DeviceMesh | None,
    ) -> torch.Tensor:
        weight, scales = parts["weight"], numbers_of(parts["scales"])
        own, threshold = None if bias is None else bias.to(given.dtype), self.quantization.threshold
        # bitsandbytes leaves inputs as they are in training on a host, and scales them elsewhere.
        if mesh is not None and not (self.training and given.device.type in {"cpu", "xpu"}):
            own_columns = (given, weight, scales, threshold, mesh)
            rows = _PartOfRows.apply(*own_columns)  # type: ignore[no-untyped-call]
            return rows if own is None else rows + own  # type: ignore[no-any-return]
        library = sys.modules[LIBRARY]
        state = library.MatmulLtState()
        state.CB, state.SCB = weight, scales
        state.has_fp16_weights, state.is_training = False, self.training
        state.threshold, state.use_pool = threshold, threshold > 0.0
        return library.matmul(given, weight, bias=own, state=state)  # type: ignore[no-any-return]


class _SmallBlocks(torch.autograd.Function):
    """Rows times a weight in 4 bits in blocks that no kernel has: unpacked, once more backward."""

    @staticmethod
    def forward(  # noqa: PLR0917 - as autograd calls it
        ctx: Any,
        given: torch.Tensor,
        weight: torch.Tensor,
        scales: torch.Tensor,
        how: Quantization,
        shape: tuple[int, int],
    ) -> torch.Tensor:
        ctx.save_for_backward(weight, scales)
        ctx.how, ctx.shape = how, shape
        whole = how.unpacked({"weight": weight, "scales": scales}, shape)
        return nn.functional.linear(given, whole.to(given.dtype))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        weight, scales = ctx.saved_tensors
        whole = ctx.how.unpacked({"weight": weight, "scales": scales}, ctx.shape)
        return gradients[0] @ whole.to(gradients[0].dtype), None, None, None, None


class _PartOfRows(torch.autograd.Function):
    """Part of the columns of rows times those of a weight in 8 bits, rows scaled as they are whole.

    Source: bitsandbytes 0.50, `autograd/_functions.py` (`MatMul8bitLt`).
    """

    @staticmethod
    def forward(  # noqa: PLR0917 - as autograd calls it
        ctx: Any,
        given: torch.Tensor,
        weight: torch.Tensor,
        scales: torch.Tensor,
        threshold: float,
        mesh: DeviceMesh,
    ) -> torch.Tensor:
        ctx.save_for_backward(weight, scales)
        rows = given.reshape(-1, given.shape[-1])
        half = rows.half()
        sizes = half.abs().float()
        if threshold > 0.0:
            sizes = sizes.masked_fill(sizes >= threshold, 0.0)
        part = DTensor.from_local(sizes.amax(1, keepdim=True), mesh, (Partial("max"),))
        # One more column, the largest element of the whole row, lets the kernel scale by it.
        known = torch.cat((half, part.full_tensor().half()), dim=1)
        packed, row_scales, outliers = functional().int8_vectorwise_quant(known, threshold)
        own = packed[:, :-1].contiguous()
        multiply = torch.ops.bitsandbytes.int8_mixed_scaled_mm
        product, _ = multiply(rows, own, weight, row_scales, scales, outliers, None)
        return product.view(*given.shape[:-1], len(weight))  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        weight, scales = ctx.saved_tensors
        whole = weight.to(gradients[0].dtype) * scales.mul(1.0 / 127.0).unsqueeze(1)
        return gradients[0] @ whole.to(gradients[0].dtype), None, None, None, None


def quantized_bits(model: nn.Module) -> set[int]:
    """Return in how many bits linears of `model` are, by bitsandbytes or here.

    Raises:
        UnsupportedPlanError: if a module of bitsandbytes is another than a frozen linear.
    """
    found: set[int] = set()
    for path, module in model.named_modules():
        if isinstance(module, QuantizedLinear):
            found.add(module.quantization.bits)
        elif (kind := _kind(module)) is not None:
            _check_known(path, kind, module)
            found.add(_BITS[kind])
    return found


def replace_packed(model: nn.Module) -> None:
    """Let linears of bitsandbytes that have packed weights already be `QuantizedLinear`."""
    for path, module in list(model.named_modules()):
        if _kind(module) in _BITS and not module.weight.is_floating_point():
            weight: Any = module.weight
            how = _quantization(module)
            if how.bits == 8:
                scales = weight.SCB if module.state.SCB is None else module.state.SCB
                parts = parts_of_8_bits(weight.detach(), scales)
            else:
                parts = how.parts_of_state(weight.data, weight.quant_state)
            _replace(model, path, how, parts)


def replace_floating(model: nn.Module, device: torch.device) -> dict[str, QuantizedLinear]:
    """Let other linears of bitsandbytes be `QuantizedLinear`; return these by their paths.

    What has values is packed on `device`; what has none keeps shapes of its parts alone.
    """
    made: dict[str, QuantizedLinear] = {}
    for path, module in list(model.named_modules()):
        if _kind(module) not in _BITS:
            continue
        how, weight = _quantization(module), module.weight
        shape = (module.out_features, module.in_features)
        if weight.is_meta:
            _check_orientation(path, module)
            dtype = torch.int8 if how.bits == 8 else torch.uint8
            parts = {
                name: torch.empty(
                    size, dtype=dtype if name == "weight" else torch.uint8, device="meta"
                )
                for name, size in how.shapes(*shape).items()
            }
        else:
            parts = how.packed(weight.detach().to(device))
        made[path] = _replace(model, path, how, parts)
    if any(linear.quantization.is_nested for _, linear in quantized_linears(model)):
        code_of_scales(device)  # no graph that is compiled later has to make it
    return made


def with_plain_linears(model: nn.Module) -> nn.Module:
    """Return `model`, or where it has packed linears a copy with plain ones, without values.

    A forward that is tried on few numbers, or on none, can run them.
    """
    found = [
        (path, module)
        for path, module in model.named_modules()
        if _kind(module) in _BITS or isinstance(module, QuantizedLinear)
    ]
    # bitsandbytes copies no parameter that has no values.
    left = {id(linear.weight): nn.Parameter(torch.empty(0)) for _, linear in found}
    tried = copy.deepcopy(model, left) if found else model
    for path, linear in found:
        columns, rows = int(linear.in_features), int(linear.out_features)
        plain = nn.Linear(columns, rows, bias=linear.bias is not None, device="meta")
        tried.set_submodule(path, plain)
    return tried


def check_split_quantized(linear: nn.Module, degree: int, *, path: str, is_row: bool) -> None:
    """Return if `degree` ranks can each have a part of the linear at `path`, if it is quantized.

    Raises:
        UnsupportedPlanError: if a byte, which holds two weights, would be cut.
    """
    if not isinstance(linear, QuantizedLinear) or linear.quantization.bits == 8:
        return
    columns = linear.in_features
    if columns % (2 * degree if is_row else 2):
        raise UnsupportedPlanError(
            f"would cut a byte of {path}, whose rows have {columns} weights of 4 bits",
            field="strategy.tensor_parallel_degree",
            value=degree,
            remedy="plan with tensor_parallel_degree limited to 1, or with base_bits 8",
        )


def distribute_parts(linear: QuantizedLinear, mesh: DeviceMesh, dimension: int) -> None:
    """Split the weight of `linear` over `mesh` in rows (0) or columns (1), and all with it."""
    how, columns = linear.quantization, linear.in_features
    placements = how.placements(columns, mesh.size(), dimension)
    placements["bias"] = Replicate() if dimension else Shard(0)
    for name, item in list(linear.named_parameters(recurse=False)):
        split = distribute_tensor(item.detach(), mesh, (placements[name],))
        linear.register_parameter(name, nn.Parameter(split, requires_grad=item.requires_grad))


def _kind(module: nn.Module) -> str | None:
    """Return what bitsandbytes calls the class with packed weights that `module` is of."""
    kinds = (item for item in type(module).__mro__ if item.__module__.startswith(f"{LIBRARY}."))
    return next((item.__name__ for item in kinds if item.__name__ in {*_BITS, *_NOT_TRAINED}), None)


def _check_known(path: str, kind: str, module: Any) -> None:
    if kind in _BITS and not getattr(module.weight, "has_fp16_weights", False):
        return
    raise UnsupportedPlanError(
        "has a module of bitsandbytes that is no linear with a frozen weight in 4 or 8 bits",
        field="build_model",
        value=f"{path}, a {type(module).__qualname__}",
        remedy="use Linear4bit, or Linear8bitLt with has_fp16_weights=False, and torch's own "
        "modules elsewhere",
    )


def _check_orientation(path: str, module: nn.Module) -> None:
    """Return unless the weight would be read the other way round, as files have GPT-2's."""
    if getattr(getattr(module, "source_cls", None), "__name__", None) == "Conv1D":
        raise UnsupportedPlanError(
            "stands for a Conv1D of transformers, whose weight files have the other way round",
            field="build_model",
            value=path,
            remedy='call from_pretrained inside `with torch.device("cpu")` in build_model, and '
            "leave weights out",
        )


def _quantization(module: Any) -> Quantization:
    """Return how a linear of bitsandbytes is packed, or is to be."""
    if _kind(module) == "Linear8bitLt":
        return Quantization(kind="int8", threshold=float(module.state.threshold))
    weight = module.weight
    state = weight.quant_state
    return Quantization(
        kind=weight.quant_type,
        block_size=weight.blocksize,
        is_nested=bool(weight.compress_statistics if state is None else state.nested),
        unpacked_dtype=weight.dtype if state is None else state.dtype,
        compute_dtype=module.compute_dtype,
    )


def _replace(
    model: nn.Module, path: str, how: Quantization, parts: Mapping[str, torch.Tensor]
) -> QuantizedLinear:
    linear = model.get_submodule(path)
    shape = (linear.out_features, linear.in_features)
    made = QuantizedLinear(how, parts, shape=shape, bias=linear.bias)  # type: ignore[arg-type]
    made.train(linear.training)
    model.set_submodule(path, made)
    return made


def _local(tensor: Any) -> torch.Tensor:
    found: torch.Tensor = tensor.to_local()
    return found


def quantized_linears(model: nn.Module) -> Iterator[tuple[str, QuantizedLinear]]:
    """Yield the quantized linears of `model`, by path."""
    for path, module in model.named_modules():
        if isinstance(module, QuantizedLinear):
            yield path, module
