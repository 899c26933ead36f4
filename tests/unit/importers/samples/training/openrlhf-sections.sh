set -x

read -r -d '' training_commands <<EOF
openrlhf.cli.train_sft \
   --data.max_len 4096 \
   --data.dataset instructions \
   --train.batch_size 256 \
   --train.micro_batch_size 2 \
   --ckpt.output_dir ./checkpoint/sft \
   --ds.zero_stage 3 \
   --ds.param_dtype bf16 \
   --ds.lora.rank 16 \
   --ds.packing_samples \
   --model.gradient_checkpointing_enable
EOF
    # --ds.ring_attn_size 2

if [[ ${1} != "slurm" ]]; then
    deepspeed --module $training_commands
fi
