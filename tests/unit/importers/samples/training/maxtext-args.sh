python3 -m MaxText.train MaxText/configs/base.yml run_name=rows model_name=llama3-8b \
  per_device_batch_size=2 max_target_length=4096 ici_fsdp_parallelism=8 ici_tensor_parallelism=1 \
  dcn_data_parallelism=2 remat_policy=minimal dtype=bfloat16 steps=20
