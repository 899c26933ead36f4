"""What parts that are recomputed by themselves add to a layer's backward, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from planner.cost.compute import compute_seconds
from planner.cost.model_parallel import model_parallel_seconds
from planner.importers.models import read_model
from planner.workload.model import model_workload
from tests.unit.cost.test_time_flags import a_setting

NAMES = frozenset({"layernorm"})


def test_norms_run_again_move_their_bytes_in_backward_alone() -> None:
    """1 norm x 4 passes x 2048 elements x 2 bytes of 65,536 tokens at the memory's pace."""
    graph = read_model("qwen3-30b-a3b")[1]
    here = a_setting(length=65536)
    again = compute_seconds(model_workload(graph, run_again=NAMES).runs[0][0], here)
    plain = compute_seconds(model_workload(graph).runs[0][0], here)
    moved = 4 * 2048 * 2 * 65536 * here.stack.elementwise_ratio
    seconds = moved / here.hardware.memory_bytes_per_second
    assert (again.backward - plain.backward).item() == pytest.approx(seconds)
    assert again.forward.item() == plain.forward.item()


def test_products_run_again_take_a_forward_and_ten_launches_their_time() -> None:
    """Five kernels more of 55 microseconds where the host sets the pace; with a product six."""
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
    assert ends[1] - ends[0] == pytest.approx(5 * 55e-6)
    assert ends[2] - ends[1] == pytest.approx(55e-6)


def test_a_core_that_runs_again_takes_its_forward_s_time_though_it_is_fused() -> None:
    graph = read_model("qwen3-30b-a3b")[1]
    here = a_setting(length=65536)
    names = frozenset({"core_attn"})
    again = compute_seconds(model_workload(graph, run_again=names).runs[0][0], here)
    plain = compute_seconds(model_workload(graph).runs[0][0], here)
    taken = (again.backward - plain.backward).item()
    assert taken == pytest.approx(plain.attention_forward.item())


def test_a_mixture_that_runs_again_is_sent_to_its_experts_again() -> None:
    graph = read_model("qwen3-30b-a3b")[1]
    here = a_setting(length=4096)
    names = frozenset({"moe"})
    again, plain = (
        model_parallel_seconds(workload.runs[0][0], "block", here, np.zeros_like(here.tokens))
        for workload in (model_workload(graph, run_again=names), model_workload(graph))
    )
    assert plain.expert_backward.item() > 0.0
    assert again.expert_backward.item() == pytest.approx(2.0 * plain.expert_backward.item())
    assert again.expert_forward.item() == plain.expert_forward.item()
