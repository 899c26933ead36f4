"""Quantized linear: a frozen linear of bitsandbytes, whose packed weight ranks can split (QLoRA).

bitsandbytes keeps a weight in 4 or 8 bits beside scales that no sharding knows of: `Linear4bit` and
`Linear8bitLt` of a script's model give way to this module. All that it holds is bytes, which ZeRO
gathers as they are, whatever the precision of the plan; each product gives bitsandbytes' own kernel
the weight and its scales. bitsandbytes is not imported: the model itself brings it.

| of a weight [N, K] | 4 bits in blocks of B            | 4 bits, scales quantized too | 8 bits   |
|--------------------|----------------------------------|------------------------------|----------|
| `weight`           | [N, K / 2]                       | [N, K / 2]                   | [N, K]   |
| `scales`           | [N, 4 K / B], each 4 bytes, fp32 | [N, K / B]                   | [N, 4]   |
| `scale_scales`     |                                  | [N K / (256 B) + 1, 4]       |          |

Where a row is no whole number of blocks, `weight` and `scales` are in one column of all rows. The
last of `scale_scales` is the mean that was taken off the scales.

Source: Dettmers et al. 2023, arXiv:2305.14314, section 3; bitsandbytes 0.50, `nn/modules.py`.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor, Partial, Shard

from executor.errors import UnsupportedPlanError

PARTS = ("weight", "scales", "scale_scales")
_LIBRARY = "bitsandbytes"
_BITS = {"Linear4bit": 4, "Linear8bitLt": 8}
_NOT_TRAINED = {"Embedding4bit", "Embedding8bit", "OutlierAwareLinear"}
_NESTED_BLOCK = 256  # bitsandbytes has no kernel for another
_SCALE_BYTES = 4
_CODES: dict[torch.device, torch.Tensor] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """How a weight is packed, and in which formats it is unpacked and multiplied.

    `kind` is `nf4`, `fp4` or `int8`. Inputs are cast to `compute_dtype` unless it is `None`;
    columns of inputs beyond `threshold` are multiplied in 16 bits, of weights in 8 alone.
    """

    kind: str
    block_size: int = 0
    is_nested: bool = False
    unpacked_dtype: torch.dtype = torch.float16
    compute_dtype: torch.dtype | None = None
    threshold: float = 0.0

    @property
    def bits(self) -> int:
        """Return the bits of one weight, scales aside."""
        return 8 if self.kind == "int8" else 4

    def shapes(self, rows: int, columns: int) -> dict[str, tuple[int, ...]]:
        """Return the shape of each part of a weight [rows, columns]."""
        if self.bits == 8:
            return {"weight": (rows, columns), "scales": (rows, _SCALE_BYTES)}
        count = rows * columns
        blocks = -(-count // self.block_size)
        each = 1 if self.is_nested else _SCALE_BYTES
        parts: dict[str, tuple[int, ...]] = {
            "weight": (-(-count // 2), 1),
            "scales": (blocks, each),
        }
        if columns % self.block_size == 0:
            in_row = columns // self.block_size
            parts = {"weight": (rows, columns // 2), "scales": (rows, each * in_row)}
        if self.is_nested:
            parts["scale_scales"] = (-(-blocks // _NESTED_BLOCK) + 1, _SCALE_BYTES)
        return parts

    def packed(self, weight: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the parts of a whole `weight` [rows, columns], on its device."""
        if self.bits == 8:
            return _parts_of_8_bits(*_functional().int8_vectorwise_quant(weight.half())[:2])
        packed, state = _functional().quantize_4bit(
            weight.to(self.unpacked_dtype).contiguous(),
            blocksize=self.block_size,
            compress_statistics=self.is_nested,
            quant_type=self.kind,
        )
        return self.parts_of_state(packed, state)

    def parts_of_state(self, packed: torch.Tensor, state: Any) -> dict[str, torch.Tensor]:
        """Return the parts of a weight that bitsandbytes has packed, with its `QuantState`."""
        held = {"weight": packed.detach().contiguous().view(torch.uint8), "scales": state.absmax}
        if self.is_nested:
            outer = (state.state2.absmax.flatten(), state.offset.flatten())
            held["scale_scales"] = _bytes(torch.cat(outer))
        else:
            held["scales"] = _bytes(state.absmax)
        shapes = self.shapes(*state.shape)
        return {name: item.reshape(shapes[name]) for name, item in held.items()}

    def state(self, parts: Mapping[str, torch.Tensor], shape: tuple[int, int]) -> Any:
        """Return bitsandbytes' `QuantState` of a weight of `shape` in 4 bits."""
        functional = _functional()
        scales, outer, offset = parts["scales"].flatten(), None, None
        if self.is_nested:
            numbers = _numbers(parts["scale_scales"])
            outer = functional.QuantState(
                absmax=numbers[:-1],
                blocksize=_NESTED_BLOCK,
                code=_code_of_scales(scales.device),
                dtype=torch.float32,
            )
            offset = numbers[-1]
        return functional.QuantState(
            absmax=scales if self.is_nested else _numbers(parts["scales"]),
            shape=torch.Size(shape),
            blocksize=self.block_size,
            quant_type=self.kind,
            dtype=self.unpacked_dtype,
            offset=offset,
            state2=outer,
        )


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
        weight = parts["weight"]
        if not isinstance(weight, DTensor):
            return self._product(input, parts, self.bias)
        local = {name: _local(item) for name, item in parts.items()}
        bias, mesh = self.bias, weight.device_mesh
        assert isinstance(input, DTensor)  # noqa: S101 - the style that has split the weight
        if weight.placements == (Shard(0),):
            given = input.to_local(grad_placements=(Partial(),))
            rows = self._product(given, local, None if bias is None else _local(bias))
            return DTensor.from_local(rows, mesh, (Shard(-1),), run_check=False)
        adds_bias = bias is not None and mesh.get_local_rank() == 0
        rows = self._product(input.to_local(), local, _local(bias) if adds_bias else None)
        return DTensor.from_local(rows, mesh, (Partial(),), run_check=False)

    def unpacked(self, parts: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the whole weight that `parts`, whole, stand for, in fp32."""
        shape = (self.out_features, self.in_features)
        if self.quantization.bits == 8:
            return parts["weight"].float() * _numbers(parts["scales"]).unsqueeze(1) / 127.0
        state = replace(self.quantization, unpacked_dtype=torch.float32).state(parts, shape)
        whole: torch.Tensor = _functional().dequantize_4bit(parts["weight"].view(-1, 1), state)
        return whole.view(shape)

    def _product(
        self, given: torch.Tensor, parts: Mapping[str, torch.Tensor], bias: torch.Tensor | None
    ) -> torch.Tensor:
        library, weight = sys.modules[_LIBRARY], parts["weight"]
        if self.quantization.bits == 8:
            state = library.MatmulLtState()
            state.CB, state.SCB = weight, _numbers(parts["scales"])
            state.has_fp16_weights, state.is_training = False, self.training
            state.threshold = self.quantization.threshold
            state.use_pool = state.threshold > 0.0
            own = None if bias is None else bias.to(given.dtype)
            return library.matmul(given, weight, bias=own, state=state)  # type: ignore[no-any-return]
        shape = (self._row_count(weight), given.shape[-1])
        wide = given.to(self.quantization.compute_dtype or given.dtype)
        rows = library.matmul_4bit(
            wide,
            weight.view(-1, 1),
            quant_state=self.quantization.state(parts, shape),
            bias=None if bias is None else bias.to(wide.dtype),
        )
        return rows.to(given.dtype)  # type: ignore[no-any-return]

    def _row_count(self, weight: torch.Tensor) -> int:
        """Return how many rows of the whole weight are here."""
        is_in_rows = self.in_features % self.quantization.block_size == 0
        return weight.shape[0] if is_in_rows else self.out_features


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
                parts = _parts_of_8_bits(weight.detach(), scales)
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
        _code_of_scales(device)  # no graph that is compiled later has to make it
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
        UnsupportedPlanError: if a block of the weight, or what scales have in common, would be cut.
    """
    if not isinstance(linear, QuantizedLinear):
        return
    how, columns = linear.quantization, linear.in_features
    if how.bits == 8:
        raise _not_split(path, "8 bits, whose inputs are scaled whole", degree, "plan in 4 bits")
    if how.is_nested:
        remedy = "quantize with bnb_4bit_use_double_quant=False"
        raise _not_split(path, "scales that are quantized together", degree, remedy)
    if columns % (how.block_size * (degree if is_row else 1)):
        blocks = f"{columns} inputs in blocks of {how.block_size}"
        raise _not_split(path, blocks, degree, "use a degree that leaves blocks whole")


def _not_split(path: str, what: str, degree: int, remedy: str) -> UnsupportedPlanError:
    return UnsupportedPlanError(
        f"would cut the packed weight of {path}, which has {what}",
        field="strategy.tensor_parallel_degree",
        value=degree,
        remedy=f"{remedy}, or plan with tensor_parallel_degree limited to 1",
    )


def _kind(module: nn.Module) -> str | None:
    """Return what bitsandbytes calls the class with packed weights that `module` is of."""
    kinds = (item for item in type(module).__mro__ if item.__module__.startswith(f"{_LIBRARY}."))
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


def _parts_of_8_bits(weight: torch.Tensor, scales: torch.Tensor) -> dict[str, torch.Tensor]:
    rows = len(weight)
    return {"weight": weight, "scales": _bytes(scales.float()).reshape(rows, _SCALE_BYTES)}


def _bytes(numbers: torch.Tensor) -> torch.Tensor:
    """Return the bytes of numbers in fp32: what gathers or casts numbers leaves bytes alone."""
    return numbers.detach().float().contiguous().view(-1, 1).view(torch.uint8)


def _numbers(held: torch.Tensor) -> torch.Tensor:
    """Return the numbers in fp32 whose bytes are `held`."""
    return held.contiguous().view(torch.float32).flatten()


def _local(tensor: Any) -> torch.Tensor:
    found: torch.Tensor = tensor.to_local()
    return found


def _functional() -> Any:
    return sys.modules[f"{_LIBRARY}.functional"]


def _code_of_scales(device: torch.device) -> torch.Tensor:
    """Return the numbers that scales in 8 bits stand for."""
    if device not in _CODES:
        _CODES[device] = _functional().create_dynamic_map().to(device)
    return _CODES[device]


def quantized_linears(model: nn.Module) -> Iterator[tuple[str, QuantizedLinear]]:
    """Yield the quantized linears of `model`, by path."""
    for path, module in model.named_modules():
        if isinstance(module, QuantizedLinear):
            yield path, module
