"""First values: what parameters begin with, whatever layout they lie in.

A rank asks for its own part of each by its name in the unsplit model.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import nn

from executor.models.declaration import InitialValue
from executor.tensor_source import Ranges

_SEED_BYTES = 7
_TILE_WIDTH = 256


class FirstValues(Protocol):
    """What a model begins with."""

    def piece(self, name: str, shape: torch.Size, ranges: Ranges) -> torch.Tensor:
        """Return a part of the parameter `name`, which has `shape` in the unsplit model."""

    def buffer(self, name: str, shape: torch.Size) -> torch.Tensor | None:
        """Return a buffer that is kept with the weights, `None` where none is known."""

    def forget(self) -> None:
        """Free what was held to answer."""


class AwaitedValues:
    """Values that a checkpoint brings: until it is read, parameters are no numbers."""

    def piece(self, _name: str, _shape: torch.Size, ranges: Ranges) -> torch.Tensor:
        """Return a part that is no number anywhere."""
        return torch.full([item.stop - item.start for item in ranges], torch.nan)

    def buffer(self, _name: str, _shape: torch.Size) -> torch.Tensor | None:
        """Return nothing: the checkpoint has buffers that are kept, others are computed."""
        return None

    def forget(self) -> None:
        """Do nothing."""


class DrawnValues:
    """Values drawn tile by tile, each from a generator seeded with the name and the tile's place.

    A rank draws the tiles that its part of a parameter meets and no others, so that first values
    take each rank its share of the time. `initial_value` is asked for one tile at a time, and each
    element of a parameter must be drawn alike, but for one row of some parameters, `zero_rows`. A
    parameter with no more elements than a tile has is one tile.
    """

    def __init__(
        self,
        initial_value: InitialValue,
        *,
        seed: int,
        zero_rows: Mapping[str, int] | None = None,
    ) -> None:
        self._initial_value = initial_value
        self._seed = seed
        self._zero_rows = zero_rows or {}

    def piece(self, name: str, shape: torch.Size, ranges: Ranges) -> torch.Tensor:
        """Return a part of the parameter `name`."""
        piece = self._drawn(name, shape, ranges)
        row = self._zero_rows.get(name)
        if row is not None and ranges[0].start <= row < ranges[0].stop:
            piece[row - ranges[0].start] = 0.0
        return piece

    def buffer(self, _name: str, _shape: torch.Size) -> torch.Tensor | None:
        """Return nothing: buffers are computed."""
        return None

    def forget(self) -> None:
        """Do nothing."""

    def _drawn(self, name: str, shape: torch.Size, ranges: Ranges) -> torch.Tensor:
        sizes = _tile_sizes(shape)
        piece = torch.empty([item.stop - item.start for item in ranges])
        if piece.numel() == 0:
            return piece
        places = (
            range(item.start // size, -(-item.stop // size))
            for item, size in zip(ranges, sizes, strict=True)
        )
        for place in itertools.product(*places):
            first = [index * size for index, size in zip(place, sizes, strict=True)]
            last = [
                min(begin + size, whole)
                for begin, size, whole in zip(first, sizes, shape, strict=True)
            ]
            tile_shape = torch.Size(end - begin for begin, end in zip(first, last, strict=True))
            tile = self._initial_value(name, tile_shape, _generator(name, self._seed, place))
            met = [
                slice(max(begin, item.start), min(end, item.stop))
                for begin, end, item in zip(first, last, ranges, strict=True)
            ]
            piece[_moved(met, [item.start for item in ranges])] = tile[_moved(met, first)]
        return piece


def padding_rows(model: nn.Module) -> dict[str, int]:
    """Return the rows of embeddings' weights that stand for padding, which begin as zeros."""
    return {
        f"{path}.weight": module.padding_idx
        for path, module in model.named_modules()
        if isinstance(module, nn.Embedding) and module.padding_idx is not None
    }


def _tile_sizes(shape: torch.Size) -> tuple[int, ...]:
    """Return the size of a tile in each dimension: of matrices it is a square."""
    if shape.numel() <= _TILE_WIDTH**2:
        return tuple(max(1, size) for size in shape)
    if len(shape) == 1:
        return (_TILE_WIDTH**2,)
    return (*(1 for _ in shape[:-2]), _TILE_WIDTH, _TILE_WIDTH)


def _moved(ranges: Sequence[slice], origin: Sequence[int]) -> Ranges:
    """Return `ranges` as they are counted from `origin`."""
    return tuple(
        slice(item.start - begin, item.stop - begin)
        for item, begin in zip(ranges, origin, strict=True)
    )


def _generator(name: str, seed: int, place: Sequence[int]) -> torch.Generator:
    """Return the generator of a tile; that of the first tile is the parameter's own."""
    tile = ":" + ",".join(map(str, place)) if any(place) else ""
    digest = hashlib.sha256(f"{seed}:{name}{tile}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:_SEED_BYTES], "big"))
