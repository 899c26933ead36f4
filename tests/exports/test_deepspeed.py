"""DeepSpeed's own DeepSpeedConfig reads the JSON: batches, ZeRO stage and offload."""

from __future__ import annotations

import json

import pytest

from tests.exports.conftest import imports_again, needed

LLAMA = (("llama-3-8b", 1),)


@pytest.fixture
def deepspeed_config(monkeypatch):
    """DeepSpeed's reader, told of 16 ranks."""
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    config = needed("deepspeed.runtime.config")

    class Ranks:
        def is_initialized(self):
            return True

        def get_world_size(self, *_):
            return 16

        def get_rank(self, *_):
            return 0

    monkeypatch.setattr(config, "dist", Ranks())
    return config.DeepSpeedConfig


def test_deepspeed_reads_what_the_plan_says(deepspeed_config, exports_to):
    for made, plan in exports_to("deepspeed", count=15, models=LLAMA):
        fields = json.loads(made.files[0].text)
        if "tensor_parallel" in fields:
            continue  # its batch check asks the tensor-parallel groups of a running job
        config = deepspeed_config(fields)
        assert config.train_batch_size == 64
        assert config.train_micro_batch_size_per_gpu == made.strategy.micro_batch_size
        assert config.gradient_accumulation_steps == made.strategy.micro_batch_count
        assert config.zero_config.stage == fields["zero_optimization"]["stage"]
        moved = "offload_optimizer" in fields["zero_optimization"]
        assert (config.zero_config.offload_optimizer is not None) == moved
        assert imports_again(made, plan, ".json")
