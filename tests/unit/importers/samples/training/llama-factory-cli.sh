llamafactory-cli train --stage sft --do_train True --finetuning_type lora --template llama3 \
  --cutoff_len 1024 --per_device_train_batch_size 4 --gradient_accumulation_steps 2 \
  --fp16 True --lora_target q_proj,v_proj --lora_rank 4
