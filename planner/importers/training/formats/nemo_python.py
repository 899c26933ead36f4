"""NeMo 2: recipes in Python, the calls and the assignments that they write out.

Names are of NeMo 2.5, `nemo/lightning` and `nemo/collections/llm/recipes`.
"""

from __future__ import annotations

from planner.importers.training.format import Format, under
from planner.importers.training.formats.megatron_keys import (
    BATCH,
    BESIDE,
    MODEL,
    OF_THE_RECIPE,
    OFFLOADED_RATIO,
    STATES,
    beside_under,
)
from planner.schema.job import Stack

_DATA = {**BATCH, "seq_length": "--seq-length"}
_DDP = "DistributedDataParallelConfig"
_MODULES = (
    "PreTrainingDataModule",
    "MockDataModule",
    "SquadDataModule",
    "DollyDataModule",
    "FineTuningDataModule",
    "HFDatasetDataModule",
)
_SETS = {
    **under("MegatronStrategy", MODEL),
    **under("trainer.strategy", MODEL),
    **under("model.config", MODEL),
    **under("optim.config", STATES),
    **under(_DDP, STATES),
    **under("trainer.strategy.ddp", STATES),
    **under("data", _DATA),
    "MegatronMixedPrecision.precision": "precision",
    "MegatronMixedPrecision.grad_reduce_in_fp32": "!--grad-reduce-in-bf16",
    "trainer.plugins.grad_reduce_in_fp32": "!--grad-reduce-in-bf16",
    "Trainer.devices": "devices_per_node",
    "Trainer.num_nodes": "node_count",
    "trainer.devices": "devices_per_node",
    "trainer.num_nodes": "node_count",
    "MegatronCommOverlapCallback.tp_comm_overlap": "--tp-comm-overlap",
    "LoRA.dim": "lora_rank",
    "LoRA.dropout": "lora_dropout",
    "LoRA.target_modules": "lora_targets",
}
for _module in _MODULES:
    _SETS |= under(_module, _DATA)
NEMO_PYTHON = Format(
    name="nemo",
    title="NeMo 2",
    signature=(
        ("MegatronStrategy.tensor_model_parallel_size",),
        ("MegatronStrategy.pipeline_model_parallel_size",),
        ("trainer.strategy.tensor_model_parallel_size",),
        ("trainer.strategy.pipeline_model_parallel_size",),
    ),
    sets=_SETS,
    unpriced={
        "MegatronCommOverlapCallback": "messages are priced as the stack overlaps them",
        "peft": "adapters that are computed are not read: all parameters are priced as trained",
        f"{_DDP}.grad_reduce_in_fp32=false": OF_THE_RECIPE,
        "trainer.strategy.ddp.grad_reduce_in_fp32=false": OF_THE_RECIPE,
    },
    beside=f"""
        trainer Trainer Trainer.strategy log resume optim NeMoLogger AutoResume ModelCheckpoint
        TensorBoardLogger OptimizerConfig MegatronOptimizerModule CosineAnnealingScheduler model
        LlamaModel Llama3Config8B GarbageCollectionCallback TimingCallback partial Partial Config
        {_DDP}.grad_reduce_in_fp32 {_DDP}.overlap_param_gather {_DDP}.average_in_collective
        {_DDP}.check_for_nan_in_grad MegatronStrategy.pipeline_dtype
        MegatronStrategy.gradient_as_bucket_view MegatronStrategy.ckpt_async_save
        MegatronStrategy.ckpt_include_optimizer MegatronStrategy.ckpt_parallel_load
        MegatronStrategy.ddp trainer.strategy.ddp MegatronMixedPrecision LoRA.alpha
    """
    + " ".join(f"trainer.strategy.{name}" for name in BESIDE.split())
    + " trainer.strategy.ddp.overlap_param_gather trainer.strategy.ddp.grad_reduce_in_fp32 "
    + "optim.lr_scheduler "
    + beside_under("model.config", "optim.config", "trainer.strategy.ddp"),
    stack=Stack.MEGATRON,
    assumed={"precision": "bf16-mixed"},
    fixed=OFFLOADED_RATIO,
)
