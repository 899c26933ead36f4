python3 -m verl.trainer.main_ppo \
    actor_rollout_ref.model.path=meta-llama/Meta-Llama-3-8B \
    actor_rollout_ref.actor.strategy=fsdp2 \
    actor_rollout_ref.actor.ppo_mini_batch_size=64 \
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1 \
    actor_rollout_ref.actor.ulysses_sequence_parallel_size=2 \
    actor_rollout_ref.actor.fsdp_config.fsdp_size=8 \
    actor_rollout_ref.actor.fsdp_config.reshard_after_forward=False \
    trainer.n_gpus_per_node=8 trainer.nnodes=2
