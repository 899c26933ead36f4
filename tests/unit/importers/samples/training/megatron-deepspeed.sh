deepspeed pretrain_gpt.py --tensor-model-parallel-size 2 --moe-expert-parallel-size 1 \
  --pipeline-model-parallel-size 1 --num-layers 32 --hidden-size 4096 --fp16 \
  --micro-batch-size 1 --global-batch-size 32 --checkpoint-activations
