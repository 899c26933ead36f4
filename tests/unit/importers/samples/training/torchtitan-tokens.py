def llama3_8b() -> Trainer.Config:
    return Trainer.Config(
        training=TrainingConfig(
            num_tokens_per_microbatch_per_dp_rank=2 * 4096,
            max_context_length=4096,
            num_tokens_per_train_step=64 * 4096,
        ),
        parallelism=ParallelismConfig(tensor_parallel_degree=2, data_parallel_shard_degree=-1),
        activation_checkpoint=FullAC.Config(),
        compile=CompileConfig(enable=True),
    )
