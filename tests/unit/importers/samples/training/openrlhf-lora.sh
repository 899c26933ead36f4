deepspeed --module openrlhf.cli.train_dpo --pretrain meta-llama/Meta-Llama-3-8B \
   --max_len 2048 --train_batch_size 64 --micro_train_batch_size 1 --zero_stage 3 --bf16 \
   --lora_rank 16 --ring_attn_size 2 --ring_head_stride 2 --beta 0.1
