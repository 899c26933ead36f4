"""Precision: what a target's configuration does not say of it is said as a loss, or refused."""

from __future__ import annotations

import json

import pytest

from planner.errors import InputError
from planner.exporters.registry import TARGETS, export
from planner.schema.job import Job, Precision
from planner.schema.strategy import Strategy
from planner.space.frameworks import framework_limits
from tests.unit.exporters.plans import plan_of, resolved_model


def exported(target, precision):
    """The export of eight shards in this precision."""
    return export(plan_of(Strategy(data_parallel_shard_degree=8), precision=precision), target)


@pytest.mark.parametrize("target", ["torchtitan", "deepspeed", "hf-trainer", "megatron-bridge"])
def test_float8_that_a_configuration_lacks_is_a_loss(target):
    (loss,) = [one for one in exported(target, Precision.FP8).losses if "8" in one]
    assert "float8" in loss or "fp8" in loss


def test_float8_of_the_trainer_is_written_as_bf16():
    fields = json.loads(exported("hf-trainer", Precision.FP8).files[0].text)
    assert fields["bf16"] is True


@pytest.mark.parametrize("target", ["megatron-lm", "accelerate"])
def test_float8_that_a_configuration_says_is_none(target):
    made = exported(target, Precision.FP8)
    assert not any("8" in one for one in made.losses)
    assert "fp8" in made.files[0].text


@pytest.mark.parametrize("target", TARGETS)
def test_bf16_loses_nothing_of_it(target):
    words = " ".join(exported(target, Precision.BF16).losses)
    assert "float8" not in words
    assert "precision" not in words


def test_overrides_do_not_say_float16():
    assert any("fp16" in one for one in exported("megatron-bridge", Precision.FP16).losses)


def test_torchtitan_is_not_planned_for_in_float16():
    job = Job.model_validate(
        {"framework": "torchtitan", "precision": "fp16", "global_batch_size": 8}
    )
    with pytest.raises(InputError, match="no float16") as caught:
        framework_limits(job, resolved_model("llama-3-8b").resolved)
    assert caught.value.field == "job.precision"
