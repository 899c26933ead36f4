torchrun pretrain_gpt.py --use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params \
  --micro-batch-size 2 --global-batch-size 64 --seq-length 4096 --bf16 --recompute-activations \
  --context-parallel-size 2 --cp-comm-type a2a
