"""NeuronX Distributed Training: YAML of its trainer.

Names are of neuronx-distributed-training 1.4, `examples/conf`. A device is a NeuronCore.
"""

from __future__ import annotations

from planner.importers.training.format import Format, under
from planner.importers.training.formats.megatron_keys import BATCH, MODEL
from planner.schema.job import Stack

NEURONX = Format(
    name="neuronx",
    title="NeuronX Distributed Training",
    signature=(
        ("distributed_strategy", "data.global_batch_size"),
        ("distributed_strategy", "model_source"),
    ),
    sets={
        **under("distributed_strategy", MODEL),
        "distributed_strategy.zero1": "--use-distributed-optimizer",
        **under("data", {**BATCH, "seq_length": "--seq-length"}),
        "model.activations_checkpoint_granularity": "--recompute-granularity",
        "model.num_layers": "--num-layers",
        "model.hidden_size": "--hidden-size",
        "model.optim.name": "optimizer",
        "precision.type": "precision",
        "trainer.devices": "devices_per_node",
        "trainer.num_nodes": "node_count",
        "trainer.gradient_clip_val": "clipping",
        **under(
            "model_alignment_strategy.peft",
            {
                "lora_rank": "lora_rank",
                "lora_dropout": "lora_dropout",
                "target_modules": "lora_targets",
            },
        ),
    },
    unpriced={
        "distributed_strategy.kv_replicator": "heads that ranks share are priced as their own",
        "distributed_strategy.use_ulysses_attention": "attention is priced as that of rings",
    },
    beside="""
        name model_source seed trainer exp_manager data model model_alignment_strategy precision
        compiler_flags compiler_cache_url aync_exec_max_inflight_requests bucket_size_collectives
        neuron_rt_exec_timeout neuron_experimental_compress_rg
    """,
    stack=Stack.MEGATRON,
    assumed={"precision": "mixed_precision"},
    notes=("Neuron's software is priced as Megatron-LM",),
)
