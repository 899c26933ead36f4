"""What parts that are recomputed by themselves add to a layer's backward, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.cost.compute import compute_seconds
from planner.importers.models import read_model
from planner.workload.model import model_workload
from tests.unit.cost.test_time_flags import a_setting

NAMES = frozenset({"layernorm"})


def test_norms_run_again_move_their_bytes_in_backward_alone() -> None:
    """2 norms x 4 passes x 2048 elements x 2 bytes of 65,536 tokens at the memory's pace."""
    graph = read_model("qwen3-30b-a3b")[1]
    here = a_setting(length=65536)
    again = compute_seconds(model_workload(graph, run_again=NAMES).runs[0][0], here)
    plain = compute_seconds(model_workload(graph).runs[0][0], here)
    moved = 2 * 4 * 2048 * 2 * 65536 * here.stack.elementwise_ratio
    seconds = moved / here.hardware.memory_bytes_per_second
    assert (again.backward - plain.backward).item() == pytest.approx(seconds)
    assert again.forward.item() == plain.forward.item()


def test_products_run_again_take_a_forward_and_ten_launches_their_time() -> None:
    """Ten kernels more of 55 microseconds where the host sets the pace; with a product eleven."""
    graph = read_model("qwen3-30b-a3b")[1]
    here = a_setting(length=16)
    layer = model_workload(graph, run_again=NAMES).runs[0][0]
    assert layer.again is not None
    with_product = replace(layer, again=replace(layer.again, gemms=frozenset({"output"})))
    ends = [
        seconds.backward_host.item() + seconds.backward.item()
        for seconds in (
            compute_seconds(model_workload(graph).runs[0][0], here),
            compute_seconds(layer, here),
            compute_seconds(with_product, here),
        )
    ]
    assert ends[1] - ends[0] == pytest.approx(10 * 55e-6)
    assert ends[2] - ends[1] == pytest.approx(55e-6)
