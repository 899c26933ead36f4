import lightning
from lightning.pytorch.strategies import FSDPStrategy

strategy = FSDPStrategy(
    sharding_strategy="SHARD_GRAD_OP",
    activation_checkpointing_policy={Block},
    cpu_offload=False,
)
trainer = lightning.Trainer(
    devices=8, num_nodes=2, precision="bf16-mixed", strategy=strategy, accumulate_grad_batches=2
)
loader = DataLoader(rows, batch_size=3)
