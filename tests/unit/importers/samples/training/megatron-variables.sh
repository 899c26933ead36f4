#!/bin/bash
#SBATCH --nodes=8
#SBATCH --gpus-per-node=2
TP=${TP:-"4"}
MBS=${MBS:-"2"}
GBS=$((SLURM_NNODES * 16))
srun torchrun --nproc_per_node 2 pretrain_gpt.py \
    --tensor-model-parallel-size ${TP} --micro-batch-size ${MBS} --global-batch-size ${GBS} \
    --seq-length 4096 --bf16 --use-distributed-optimizer --num-layers 32 --hidden-size 4096
