swift sft --model some/llama --train_type lora --dataset rows --quant_bits 4 --quant_method bnb \
  --per_device_train_batch_size 2 --gradient_accumulation_steps 2 --max_length 1024 \
  --lora_rank 16 --gradient_checkpointing false
