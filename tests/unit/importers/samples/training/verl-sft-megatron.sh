train_path=${train_path:-"${HOME}/data/sft/train.parquet"}
TP=${TP:-2}
CKPT=${CKPT:-"${HOME}/sft/tp${TP}"}
ENGINE_CONFIG="\
    engine=megatron \
    engine.tensor_model_parallel_size=${TP} \
    engine.pipeline_model_parallel_size=2 \
    engine.sequence_parallel=True \
    engine.override_ddp_config.grad_reduce_in_fp32=False"

torchrun --standalone --nnodes=1 --nproc-per-node=8 -m verl.trainer.sft_trainer \
    data.train_files="$train_path" \
    data.train_batch_size=64 \
    data.micro_batch_size_per_gpu=2 \
    data.max_length=2048 \
    model.path=llama \
    ${ENGINE_CONFIG} \
    optim.clip_grad=1.0 \
    trainer.default_local_dir="${CKPT}"
