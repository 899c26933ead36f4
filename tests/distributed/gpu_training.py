"""Script: what people do with one GPU beside a step: resume, train in 8 bits, use the Trainer.

Run as `executor.launcher PLAN -- gpu_training.py FOLDER`, whose `answer.json` is written: what each
gave, and what it must equal. Both are trained on the device that the launcher gives.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torchao import float8

import executor
from executor.apply.materialise import materialise
from executor.losses import next_token_loss
from executor.models.decoder import Decoder, initial_value
from executor.models.first_values import DrawnValues
from executor.session import Session
from planner.schema.job import Precision
from planner.schema.model import ModelGraph
from tests.distributed.foreign_tasks import (
    llama,
    llama_plan,
    plain_run,
    plain_trainer,
    training_rows,
)
from tests.distributed.plans import GLOBAL_BATCH_SIZE
from tests.distributed.reference import SEED, adamw, floats_of, global_batches

STEPS, SAVED_AFTER = 4, 2


def resumed(first: Session, folder: Path) -> dict[str, Any]:
    """Save in the background while the run goes on, and go on from there in another trainer."""
    with floats_of(64):
        whole = _trainer(first)
        losses = []
        for step, batch in enumerate(first.shard(global_batches(0, STEPS))):
            losses.append(whole.step(*batch).loss)
            if step + 1 == SAVED_AFTER:
                whole.save(folder / "checkpoints", wait=False)
        whole.finish_saving()
        again = Session(first.plan, device=first.device)
        trainer = _trainer(again)
        trainer.load(folder / "checkpoints")
        rest = [trainer.step(*batch).loss for batch in again.shard(global_batches(0, STEPS))]
    return {"losses": rest, "expected": losses[SAVED_AFTER:]}


def in_8_bits(first: Session, *, by_rows: bool, fused: bool) -> dict[str, Any]:
    """Train in fp8, compiled where casts are to be fused, and in torchao's emulation of it."""
    job = first.plan.job.resolved.model_copy(
        update={
            "precision": Precision.FP8,
            "row_scaled_fp8": by_rows,
            "fused_elementwise": fused or None,
        }
    )
    resolved = first.plan.job.model_copy(update={"resolved": job})
    session = Session(first.plan.model_copy(update={"job": resolved}), device=first.device)
    trainer = _trainer(session)
    losses = [trainer.step(*batch).loss for batch in session.shard(global_batches(0, STEPS))]
    return {
        "losses": losses,
        "expected": _emulated(first.plan.model.resolved, first.device, by_rows=by_rows),
        "exact": _plain(first.plan.model.resolved, first.device),
        "differences": list(session.report().differences_from_plan),
    }


def in_the_trainer(first: Session) -> dict[str, Any]:
    """Train a Llama in transformers' Trainer under a plan of one device, and in plain torch."""
    from transformers import Trainer, TrainingArguments  # noqa: PLC0415 - takes seconds

    from meshwright.integrations.hugging_face import PlanCallback, planned_arguments  # noqa: PLC0415

    plan = llama_plan({"micro_batch_size": GLOBAL_BATCH_SIZE // 2})
    own = plain_trainer(use_cpu=first.device.type == "cpu")
    arguments = TrainingArguments("unused", **planned_arguments(plan), **own)
    with floats_of(64):
        rows = [{"input_ids": row, "labels": row} for row in training_rows()]
        trainer = Trainer(llama(), arguments, train_dataset=rows, callbacks=[PlanCallback(plan)])
        with contextlib.redirect_stdout(io.StringIO()):
            trainer.train()
        _, expected = plain_run()
    device = next(trainer.model.parameters()).device
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return {"losses": losses, "expected": expected, "device": device.type}


def _trainer(session: Session) -> Any:
    graph = session.plan.model.resolved
    return session.parallelize(lambda: Decoder(graph), next_token_loss, adamw, seed=SEED)


def _emulated(graph: ModelGraph, device: torch.device, *, by_rows: bool) -> list[float]:
    """Return the losses of a loop whose linears in blocks are torchao's, without 8-bit kernels."""
    config = float8.Float8LinearConfig.from_recipe_name("rowwise" if by_rows else "tensorwise")
    object.__setattr__(config, "emulate", True)
    model = _drawn(graph, device)
    float8.convert_to_float8_training(model.blocks, config=config)
    return _losses(model, device, torch.bfloat16)


def _plain(graph: ModelGraph, device: torch.device) -> list[float]:
    """Return the losses of a loop in fp32."""
    return _losses(_drawn(graph, device), device, torch.float32)


def _drawn(graph: ModelGraph, device: torch.device) -> Decoder:
    model = Decoder(graph)
    values = DrawnValues(initial_value, seed=SEED)
    materialise(model, declaration=model.declaration(), device=device, values=values)
    return model


def _losses(model: nn.Module, device: torch.device, dtype: torch.dtype) -> list[float]:
    weights = dict(model.named_parameters())
    optimizer = adamw(weights.values())
    losses = []
    for inputs, targets in islice(global_batches(0, STEPS), STEPS):
        optimizer.zero_grad()
        copies = {name: value.to(dtype) for name, value in weights.items()}
        logits = torch.func.functional_call(model, copies, (inputs.to(device),))
        loss = next_token_loss(logits.float(), targets.to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main() -> None:
    """Do all, and write the answer."""
    folder = Path(sys.argv[1])
    first = executor.start()
    answer = {
        "resumed": resumed(first, folder),
        "tensors": in_8_bits(first, by_rows=False, fused=False),
        "rows": in_8_bits(first, by_rows=True, fused=False),
        "compiled": in_8_bits(first, by_rows=False, fused=True),
        "trainer": in_the_trainer(first),
    }
    (folder / "answer.json").write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main()
