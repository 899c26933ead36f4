"""A save that goes on while a script ends its process group is written first."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

pytest.importorskip("torch", reason="no package torch")

import torch
from torch import distributed
from torch.distributed import distributed_c10d

from executor.background_save import BackgroundSaves

_MOMENT_SECONDS = 0.1


@pytest.fixture(name="order")
def _order(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What happens in a process group of one rank."""
    for module in (distributed, distributed_c10d):
        monkeypatch.setattr(module, "destroy_process_group", distributed.destroy_process_group)
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield []
    if distributed.is_initialized():
        distributed.destroy_process_group()


def test_a_group_ends_when_what_is_saved_over_it_is_written(order: list[str]) -> None:
    may_write = threading.Event()

    def write(group: distributed.ProcessGroup) -> None:
        may_write.wait()
        distributed.all_reduce(torch.ones(1), group=group)
        order.append("written")

    def end() -> None:
        distributed.destroy_process_group()
        order.append("ended")

    saves = BackgroundSaves()
    saves.start(write)
    ending = threading.Thread(target=end)
    ending.start()
    ending.join(_MOMENT_SECONDS)  # in which it would end, if it did not wait
    may_write.set()
    ending.join()
    saves.finish()
    assert order == ["written", "ended"]
