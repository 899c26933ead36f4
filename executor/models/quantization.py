"""Quantization: how bitsandbytes packs a weight in 4 or 8 bits, in parts that ranks can split.

| of a weight [N, K] | 4 bits in blocks of B            | 4 bits, scales quantized too | 8 bits   |
|--------------------|----------------------------------|------------------------------|----------|
| `weight`           | [N, K / 2]                       | [N, K / 2]                   | [N, K]   |
| `scales`           | [N, 4 K / B], each 4 bytes, fp32 | [N, K / B]                   | [N, 4]   |
| `scale_scales`     |                                  | [N K / (256 B) + 1, 4]       |          |

Where a row is no whole number of blocks, `scales` are in one column of all blocks, and where K is
odd `weight` is in one column too. The last of `scale_scales` is the mean that was taken off the
scales.

Tensor parallelism splits `weight` in rows or columns. Each rank keeps of `scales` those of its
blocks, or all where its part would cut a block or, in 8 bits, a row; of `scale_scales` all.

Source: Dettmers et al. 2023, arXiv:2305.14314, section 3; bitsandbytes 0.50, `nn/modules.py`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.distributed.tensor import Placement, Replicate, Shard

PARTS = ("weight", "scales", "scale_scales")
LIBRARY = "bitsandbytes"
_NESTED_BLOCK = 256  # bitsandbytes has no kernel for another
_SCALE_BYTES = 4
KERNEL_BLOCKS = (32, 64, 128, 256, 512, 1024, 2048, 4096)  # of bitsandbytes in 4 bits
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
            "weight": (rows, columns // 2) if columns % 2 == 0 else (-(-count // 2), 1),
            "scales": (blocks, each),
        }
        if columns % self.block_size == 0:
            parts["scales"] = (rows, each * (columns // self.block_size))
        if self.is_nested:
            parts["scale_scales"] = (-(-blocks // _NESTED_BLOCK) + 1, _SCALE_BYTES)
        return parts

    def packed(self, weight: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the parts of a whole `weight` [rows, columns], on its device."""
        if self.bits == 8:
            return parts_of_8_bits(*functional().int8_vectorwise_quant(weight.half())[:2])
        packed, state = functional().quantize_4bit(
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
        library = functional()
        scales, outer, offset = parts["scales"].flatten(), None, None
        if self.is_nested:
            numbers = numbers_of(parts["scale_scales"])
            outer = library.QuantState(
                absmax=numbers[:-1],
                blocksize=_NESTED_BLOCK,
                code=code_of_scales(scales.device),
                dtype=torch.float32,
            )
            offset = numbers[-1]
        return library.QuantState(
            absmax=scales if self.is_nested else numbers_of(parts["scales"]),
            shape=torch.Size(shape),
            blocksize=self.block_size,
            quant_type=self.kind,
            dtype=self.unpacked_dtype,
            offset=offset,
            state2=outer,
        )

    def unpacked(self, parts: Mapping[str, torch.Tensor], shape: tuple[int, int]) -> torch.Tensor:
        """Return the weight of `shape` that `parts` stand for, in fp32."""
        if self.bits == 8:
            return parts["weight"].float() * numbers_of(parts["scales"]).unsqueeze(1) / 127.0
        how, scales = replace(self, unpacked_dtype=torch.float32), None
        if self.block_size not in KERNEL_BLOCKS:
            scales = numbers_of(parts["scales"]).view(-1, 1)
            ones = torch.ones(-(-math.prod(shape) // KERNEL_BLOCKS[0]), device=scales.device)
            how = replace(how, block_size=KERNEL_BLOCKS[0])
            parts = {"weight": parts["weight"], "scales": _bytes(ones)}
        # In one row: the kernel of CPUs takes each row to begin with a block.
        state = how.state(parts, (1, math.prod(shape)))
        whole: torch.Tensor = functional().dequantize_4bit(parts["weight"].reshape(-1, 1), state)
        return (whole if scales is None else whole.view(len(scales), -1) * scales).view(shape)

    def placements(self, columns: int, degree: int, dimension: int) -> dict[str, Placement]:
        """Return where parts of a weight are whose rows (0) or columns (1) are split evenly."""
        scales: Placement = Shard(dimension)
        if self.bits == 8:
            scales = Replicate() if dimension else scales
        elif columns % (self.block_size * (degree if dimension else 1)):
            scales = Replicate()
        return {"weight": Shard(dimension), "scales": scales, "scale_scales": Replicate()}

    def of_part(
        self,
        parts: Mapping[str, torch.Tensor],
        *,
        columns: int,
        begins: tuple[int, int],
        holds_scales: bool,
    ) -> tuple[Quantization, dict[str, torch.Tensor]]:
        """Return how a part of a weight in 4 bits is packed, with one scale in fp32 a block.

        The part has all rows of `parts["weight"]` [n, k / 2], and `begins` at a row and column of
        the whole, whose rows have `columns`. It `holds_scales` of its own blocks, or of all.
        """
        weight, scales = parts["weight"], parts["scales"]
        rows, width = len(weight), 2 * weight.shape[1]
        block = math.gcd(self.block_size, columns, width)
        how = replace(self, block_size=block, is_nested=False)
        if holds_scales and not self.is_nested:
            return how, {"weight": weight, "scales": scales}
        first = (begins[0] + torch.arange(rows, device=weight.device)) * columns + begins[1]
        inner = torch.arange(0, width, block, device=weight.device)
        blocks = (first.unsqueeze(1) + inner).flatten() // self.block_size
        held = scales.flatten() if self.is_nested else numbers_of(scales)
        held = held if holds_scales else held[blocks]
        if self.is_nested:
            outer = numbers_of(parts["scale_scales"])
            code = code_of_scales(weight.device)
            held = code[held.long()] * outer[blocks // _NESTED_BLOCK] + outer[-1]
        return how, {"weight": weight, "scales": _bytes(held)}


def parts_of_8_bits(weight: torch.Tensor, scales: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the parts of a weight [rows, columns] in 8 bits, with the `scales` of its rows."""
    rows = len(weight)
    return {"weight": weight, "scales": _bytes(scales.float()).reshape(rows, _SCALE_BYTES)}


def _bytes(numbers: torch.Tensor) -> torch.Tensor:
    """Return the bytes of numbers in fp32: what gathers or casts numbers leaves bytes alone."""
    return numbers.detach().float().contiguous().view(-1, 1).view(torch.uint8)


def numbers_of(held: torch.Tensor) -> torch.Tensor:
    """Return the numbers in fp32 whose bytes are `held`."""
    return held.contiguous().view(torch.float32).flatten()


def functional() -> Any:
    """Return the module of bitsandbytes that packs and unpacks."""
    return sys.modules[f"{LIBRARY}.functional"]


def code_of_scales(device: torch.device) -> torch.Tensor:
    """Return the numbers that scales in 8 bits stand for."""
    if device not in _CODES:
        _CODES[device] = functional().create_dynamic_map().to(device)
    return _CODES[device]
