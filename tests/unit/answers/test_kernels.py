"""Kernels that a job leaves out: the gains are those of the same layout priced by itself."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from planner.answers.kernels import kernel_gains, kernel_words
from planner.cli.views.plan import answer_view
from planner.planning import estimate, plan, resolved_cluster, resolved_model
from planner.schema.job import Job
from planner.schema.plan import Plan

LLAMA = resolved_model("llama-3-8b")


def planned(cluster: str, **job: object) -> Plan:
    asked = {"global_batch_size": 64, "sequence_length": 8192, **job}
    found = plan(LLAMA, resolved_cluster(cluster), Job.model_validate(asked))
    assert isinstance(found, Plan)
    return found


@pytest.fixture(scope="module")
def on_hopper() -> Plan:
    return planned("8xh100-sxm5-80gb")


def test_gains_are_what_the_layout_takes_for_a_job_that_has_them(on_hopper: Plan) -> None:
    cluster, job = resolved_cluster("8xh100-sxm5-80gb"), on_hopper.job.resolved
    for gain in kernel_gains(on_hopper):
        changed = Job.model_validate({**job.model_dump(), **dict(gain.fields)})
        before, after = (
            estimate(LLAMA, cluster, one, on_hopper.strategy).prediction for one in (job, changed)
        )
        held = [max(s.peak_memory_bytes for s in one.stages) for one in (before, after)]
        assert gain.bytes_less == pytest.approx(held[0] - held[1])
        ratio = 1.0 - after.step_seconds.p50 / before.step_seconds.p50
        assert gain.step_ratio == pytest.approx(ratio, abs=0.01)  # of pipelines that are simulated


def test_plain_torch_on_hopper_would_gain_by_norms_attention_and_the_loss(on_hopper: Plan) -> None:
    gains = kernel_gains(on_hopper)
    names = [tuple(name for name, _ in gain.fields) for gain in gains]
    alone = ("fused_norms", "flash_attention_generation", "fused_linear_loss")
    assert names == [*((name,) for name in alone), alone]
    norms, attention, loss, together = gains
    assert norms.step_ratio > 0.03 < attention.step_ratio
    assert abs(loss.step_ratio) < 0.01 < loss.memory_ratio
    assert together.step_ratio > max(norms.step_ratio, attention.step_ratio)


def test_what_a_job_states_is_not_said_again() -> None:
    own = {"fused_elementwise": True, "flash_attention_generation": 3, "fused_loss": True}
    assert list(kernel_words(planned("8xh100-sxm5-80gb", **own))) == []


def test_a_stack_that_has_a_kernel_and_a_device_that_lacks_one_gain_nothing_by_it() -> None:
    """Megatron fuses norms; an A100 has no third generation of flash attention."""
    names = {
        name
        for gain in kernel_gains(planned("8xa100-sxm4-80gb", stack="megatron"))
        for name, _ in gain.fields
    }
    assert names <= {"fused_linear_loss"}


def test_tensor_parallelism_of_torch_would_gain_by_running_beside_products() -> None:
    split = {"tensor_parallel_degree": 8, "sequence_parallel": True, "zero_stages": (3,)}
    gains = {
        name: gain.step_ratio
        for gain in kernel_gains(planned("8xh100-sxm5-80gb", limits=split))
        for name, _ in gain.fields[:1]
        if len(gain.fields) == 1
    }
    assert gains["overlapped_tensor_parallel"] > 0.02


def test_gradients_of_deepspeed_would_gain_by_coming_beside_backward() -> None:
    job = {"global_batch_size": 16, "sequence_length": 2048, "stack": "deepspeed"}
    limits = {"data_parallel_shard_degree": 16, "zero_stages": (2,)}
    found = kernel_gains(planned("2x8xa100-sxm4-80gb", **job, limits=limits))
    gains = {gain.fields: gain.step_ratio for gain in found}
    assert gains[("overlapped_gradients", True),] > 0.05


def test_words_name_the_fields_and_what_they_save(on_hopper: Plan) -> None:
    """Each is a line of what `meshwright plan` prints."""
    lines = list(kernel_words(on_hopper))
    console = Console(width=1000, file=StringIO())
    console.print(answer_view(on_hopper))
    assert isinstance(console.file, StringIO)
    printed = console.file.getvalue()
    assert all(f"  kernels: {line} (--set)" in printed for line in lines)
    assert lines[0].startswith("with fused_norms=true: a step would take ")
    assert " and a device would hold " in lines[0]
    assert lines[1].startswith("with flash_attention_generation=3: a step would take ")
    assert lines[2].startswith("with fused_linear_loss=true: a device would hold ")
