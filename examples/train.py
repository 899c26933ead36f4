"""A training script under a plan: `python -m executor.launcher PLAN.json -- examples/train.py`.

The lines that know of Meshwright are marked; all else is the script's own.
"""
# ruff: noqa: INP001, T201 - a script, which prints

from itertools import islice

import torch

import meshwright  # Meshwright
from executor.data import corpus_batches
from executor.losses import next_token_loss
from executor.models.decoder import Decoder

session = meshwright.start()  # Meshwright
graph, job = session.plan.model.resolved, session.plan.job.resolved
trainer = session.parallelize(  # Meshwright
    lambda: Decoder(graph),
    next_token_loss,
    lambda parameters: torch.optim.AdamW(parameters, lr=3e-3),
)
loader = islice(
    corpus_batches(global_batch_size=job.global_batch_size, sequence_length=job.sequence_length), 10
)
for step, (inputs, targets) in enumerate(session.shard(loader)):  # Meshwright
    metrics = trainer.step(inputs, targets)  # Meshwright
    if torch.distributed.get_rank() == 0:
        print(f"step {step + 1}: loss {metrics.loss:.4f}, {metrics.seconds * 1e3:.0f} ms")
