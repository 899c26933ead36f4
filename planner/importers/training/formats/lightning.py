"""Lightning: the calls of `Trainer` or `Fabric` and of their strategies, in Python.

Names are of Lightning 2.6, `pytorch/strategies` and `fabric/strategies`.
"""

from __future__ import annotations

from planner.importers.training.format import Format, under

_PROGRAMS = ("Trainer", "Fabric")
_RUN = {
    "devices": "devices_per_node",
    "num_nodes": "node_count",
    "precision": "precision",
    "accumulate_grad_batches": "accumulation",
    "gradient_clip_val": "clipping",
}
_STAGES = {"fsdp": 3, "ddp": 0, "auto": 0, "ddp_find_unused_parameters_true": 0}


def _stage(name: object) -> int | None:
    """Return the ZeRO stage of a strategy by name; a strategy that is built says its own."""
    word = str(name)
    if word.startswith("deepspeed_stage_"):
        return int(word.removeprefix("deepspeed_stage_")[:1])
    return _STAGES.get(word)


LIGHTNING = Format(
    name="lightning",
    title="Lightning",
    signature=(
        ("FSDPStrategy", "Trainer"),
        ("FSDPStrategy", "Fabric"),
        ("ModelParallelStrategy",),
        ("Trainer.strategy", "Trainer.devices", "!MegatronStrategy"),
        ("Fabric.strategy", "!MegatronStrategy"),
    ),
    sets={
        **under("Trainer", _RUN),
        **under("Fabric", _RUN),
        "Trainer.strategy": "zero_stage",
        "Fabric.strategy": "zero_stage",
        "FSDPStrategy.sharding_strategy": "sharding",
        "FSDPStrategy.cpu_offload": "offload",
        "FSDPStrategy.activation_checkpointing_policy": "checkpointing",
        "ModelParallelStrategy.data_parallel_size": "shard",
        "ModelParallelStrategy.tensor_parallel_size": "tensor",
        "DataLoader.batch_size": "micro_batch",
    },
    convert={
        **{f"{program}.strategy": _stage for program in _PROGRAMS},
        "FSDPStrategy.activation_checkpointing_policy": lambda _: True,
        "FSDPStrategy.cpu_offload": lambda given: given is not False,
    },
    refused={
        "DeepSpeedStrategy": "give the DeepSpeed configuration that it stands for",
        "FSDPStrategy.device_mesh": "leave it out, with HYBRID_SHARD nodes are replicas",
    },
    beside="DataLoader LightningModule Trainer Fabric ModelCheckpoint AdamW SGD "
    "FSDPStrategy.auto_wrap_policy FSDPStrategy.state_dict_type FSDPStrategy.limit_all_gathers "
    "ModelParallelStrategy.save_distributed_checkpoint fit WandbLogger TensorBoardLogger",
)
