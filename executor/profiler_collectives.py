"""Collectives that the profiler measures, by name: each is made ready for a size and a group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import distributed

from executor.stopwatch import Work
from planner.schema.figures import Collective


def nothing() -> None:
    """Stand in for a collective on ranks outside its group."""


def neighbours(count: int, rank_count: int) -> tuple[Any, bool]:
    """Return this rank's group of `count` neighbours, and whether it is in one."""
    rank, own = distributed.get_rank(), None
    for first in range(0, rank_count - count + 1, count):
        ranks = list(range(first, first + count))
        group = distributed.new_group(ranks)
        own = group if rank in ranks else own
    return own, own is not None


def _all_reduce(size: int, _count: int, group: Any, device: torch.device) -> Work:
    whole = torch.zeros(size // 4, device=device)
    return lambda: distributed.all_reduce(whole, group=group)


def _all_gather(size: int, count: int, group: Any, device: torch.device) -> Work:
    share = torch.zeros(size // 4 // count, device=device)
    whole = torch.zeros(share.numel() * count, device=device)
    return lambda: distributed.all_gather_into_tensor(whole, share, group=group)


def _reduce_scatter(size: int, count: int, group: Any, device: torch.device) -> Work:
    share = torch.zeros(size // 4 // count, device=device)
    whole = torch.zeros(share.numel() * count, device=device)
    return lambda: distributed.reduce_scatter_tensor(share, whole, group=group)


def _all_to_all(size: int, count: int, group: Any, device: torch.device) -> Work:
    sent = torch.zeros(size // 4 // count * count, device=device)
    came = torch.zeros_like(sent)
    return lambda: distributed.all_to_all_single(came, sent, group=group)


def _send_recv(size: int, count: int, group: Any, device: torch.device) -> Work:
    """Return a message from each even rank to its neighbour."""
    whole, rank = torch.zeros(size // 4, device=device), distributed.get_rank()
    if rank % 2 == 1:
        return lambda: distributed.recv(whole, src=rank - 1, group=group)
    if rank % count + 1 < count:
        return lambda: distributed.send(whole, dst=rank + 1, group=group)
    return nothing


OPERATIONS: dict[Collective, Callable[[int, int, Any, torch.device], Work]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "send_recv": _send_recv,
}
