"""Gradients that are reduced whole go together, neighbours of backward up to 25 MiB."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from executor.apply.pieces import Piece
from executor.apply.replicate import Replica
from executor.apply.zero import buckets_of

MIB_LINEAR = 512  # 512 x 512 x 4 bytes are 1 MiB


def buckets(*modules: nn.Module, experts: tuple[int, ...] = ()) -> list[tuple[bool, float]]:
    """Return of each bucket whether it is of experts, and its MiB."""
    group: Any = None
    pieces = [
        Piece(modules=(module,), zero_stage=0, offload=frozenset(), are_experts=index in experts)
        for index, module in enumerate(modules)
    ]
    made = {piece: Replica(piece.modules, group=group, degree=2) for piece in pieces}
    found = buckets_of(made, pieces)
    return [
        (are_experts, sum(item.numel() * item.element_size() for item in one.trained()) / 2**20)
        for are_experts, one in found
    ]


def linear(mebibytes: int, dtype: torch.dtype = torch.float32) -> nn.Module:
    """Return weights of so many MiB."""
    rows = mebibytes * MIB_LINEAR * 4 // dtype.itemsize
    return nn.Linear(MIB_LINEAR, rows, bias=False, dtype=dtype)


def test_neighbours_share_a_bucket_while_they_fit():
    assert buckets(linear(10), linear(10), linear(10), linear(3)) == [(False, 20.0), (False, 13.0)]


def test_what_is_larger_than_a_bucket_stands_alone():
    assert buckets(linear(1), linear(30), linear(1)) == [
        (False, 1.0),
        (False, 30.0),
        (False, 1.0),
    ]


def test_experts_and_other_formats_stand_apart():
    assert buckets(linear(1), linear(2), linear(3), experts=(1,)) == [
        (False, 1.0),
        (True, 2.0),
        (False, 3.0),
    ]
    assert buckets(linear(1), linear(2, torch.float64)) == [(False, 1.0), (False, 2.0)]
