"""An activation in steps, priced by hand: bytes over memory, and only where norms are steps too."""

from __future__ import annotations

import pytest

from planner.cost.activations import all_bytes
from planner.cost.compute import compute_seconds
from planner.cost.configuration import Configuration, Configurations
from planner.cost.setting import Setting, setting
from planner.hardware import cluster_hardware
from planner.importers.clusters import cluster_from_short_form
from planner.importers.models import model_from_fields
from planner.schema.job import Precision, Stack
from planner.schema.model import Activation
from planner.workload.layer import LayerWorkload
from planner.workload.model import model_workload
from tests.builders import a_job

TOKENS, WIDTH = 1024, 2048
GPT2 = {
    "model_type": "gpt2",
    "n_embd": 512,
    "n_inner": WIDTH,
    "n_layer": 1,
    "n_head": 8,
    "vocab_size": 64,
}


def a_block(activation: str) -> LayerWorkload:
    graph = model_from_fields({**GPT2, "activation_function": activation}, name="it")
    return model_workload(graph).runs[0][0]


def a_wide_block() -> LayerWorkload:
    graph = model_from_fields({**GPT2, "activation_function": "gelu_new"}, name="it")
    (run,) = graph.runs
    own = run.block.feed_forward.model_copy(update={"activation": Activation.GELU_WIDE_STEPS})
    block = run.block.model_copy(update={"feed_forward": own})
    changed = graph.model_copy(update={"runs": (run.model_copy(update={"block": block}),)})
    return model_workload(changed).runs[0][0]


def a_setting(tensor: int = 1, **job: object) -> Setting:
    """One sequence of 1,024 tokens on eight A100."""
    (kind,) = cluster_hardware(cluster_from_short_form("1x8xa100-sxm4-80gb")).kinds
    rows = Configurations.of([Configuration(tensor_parallel_degree=tensor)])
    return setting(a_job(sequence_length=TOKENS, **job), kind, rows)


def added(block: LayerWorkload, own: Setting) -> tuple[float, float]:
    """Bytes an element inside that forward and backward move beside the fused block's."""
    one, other = compute_seconds(block, own), compute_seconds(a_block("gelu"), own)
    elements = TOKENS * WIDTH / own.tensor[0, 0]
    pace = own.hardware.memory_bytes_per_second / elements
    return (
        float((one.forward - other.forward)[0, 0]) * pace,
        float((one.backward - other.backward)[0, 0]) * pace,
    )


@pytest.mark.parametrize("tensor", [1, 4])
def test_steps_move_32_bytes_an_element_forward_and_50_backward(tensor: int) -> None:
    """8 operations of 36 bytes and 11 of 56, less 4 and 6 of one kernel."""
    assert added(a_block("gelu_new"), a_setting(tensor)) == pytest.approx((32.0, 50.0))


def test_steps_of_32_bits_move_72_bytes_forward_and_112_backward() -> None:
    assert added(a_wide_block(), a_setting()) == pytest.approx((72.0, 112.0))


def test_in_fp32_steps_move_twice_as_much() -> None:
    own = a_setting(precision=Precision.FP32)
    assert added(a_block("gelu_new"), own) == pytest.approx((64.0, 100.0))


@pytest.mark.parametrize("job", [{"fused_elementwise": True}, {"stack": Stack.MEGATRON}])
def test_fused_kernels_have_no_steps(job: dict[str, object]) -> None:
    assert added(a_block("gelu_new"), a_setting(**job)) == pytest.approx((0.0, 0.0), abs=1e-9)


def test_steps_keep_6_bytes_an_element_more_and_12_in_32_bits() -> None:
    plain = all_bytes(a_block("gelu"), a_setting())
    narrow, wide = (
        all_bytes(block, a_setting()) for block in (a_block("gelu_new"), a_wide_block())
    )
    assert float((narrow - plain)[0, 0]) == TOKENS * WIDTH * 6
    assert float((wide - plain)[0, 0]) == TOKENS * WIDTH * 12


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({}, Activation.GELU_STEPS),  # the class's default
        ({"activation_function": "gelu"}, Activation.KERNEL),
        ({"activation_function": "gelu_pytorch_tanh"}, Activation.KERNEL),
        ({"activation_function": "gelu_new"}, Activation.GELU_STEPS),
    ],
)
def test_a_configuration_says_which_gelu_it_has(fields: dict[str, str], kind: Activation) -> None:
    graph = model_from_fields({**GPT2, **fields}, name="it")
    assert graph.runs[0].block.feed_forward.activation is kind
