import nemo_run as run
from nemo import lightning as nl


def recipe():
    strategy = run.Config(
        nl.MegatronStrategy,
        tensor_model_parallel_size=4,
        pipeline_model_parallel_size=2,
        virtual_pipeline_model_parallel_size=None,
        sequence_parallel=True,
        ddp=run.Config(DistributedDataParallelConfig, overlap_grad_reduce=True,
                       use_distributed_optimizer=True),
    )
    data = run.Config(MockDataModule, seq_length=8192, global_batch_size=64, micro_batch_size=1)
    trainer = run.Config(nl.Trainer, devices=8, num_nodes=2, strategy=strategy)
    return trainer, data
