"""Trains under plans in Lightning, on ranks that torchrun starts; rank 0 writes what came of it.

torchrun --nproc-per-node 2 -m tests.exports.lightning_training OUT.json
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import lightning
import torch
from torch import distributed
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.utils.data import DataLoader, DistributedSampler

from meshwright.integrations.lightning import planned_trainer
from planner.errors import InputError
from planner.schema.plan import Plan
from tests.distributed.foreign_tasks import (
    STEPS,
    llama,
    llama_plan,
    parameter_error,
    plain_run,
    training_rows,
    undecayed,
)

RANKS = 2
REPLICAS = {"data_parallel_degree": RANKS, "micro_batch_size": 2}
ZERO3 = {**REPLICAS, "zero_stage": 3, "activation_checkpointing": "full"}

TP2 = {"tensor_parallel_degree": RANKS, "micro_batch_size": 4}


class Module(lightning.LightningModule):
    """A Llama and its loss, as a script has them."""

    def __init__(self) -> None:
        super().__init__()
        self.model = llama()
        self.losses: list[float] = []

    def training_step(self, batch: torch.Tensor) -> torch.Tensor:
        """Return the loss of one micro-batch."""
        loss = self.model(input_ids=batch, labels=batch).loss
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer of every run compared here."""
        return undecayed(self.model.parameters())


class SplitModule(Module):
    """The same, which splits its linears as Lightning has it."""

    def configure_model(self) -> None:
        """Split each block over the tensor-parallel ranks."""
        for layer in self.model.model.layers:
            parallelize_module(layer, self.device_mesh["tensor_parallel"], _LINEARS)


_LINEARS = {
    **{f"self_attn.{name}_proj": ColwiseParallel() for name in "qkv"},
    "self_attn.o_proj": RowwiseParallel(),
    **{f"mlp.{name}_proj": ColwiseParallel() for name in ("gate", "up")},
    "mlp.down_proj": RowwiseParallel(),
}


def fitted(
    plan: Plan, *, batch: int = 2, kind: type[Module] = Module, **changes: Any
) -> dict[str, Any]:
    """Train under the plan; return losses, how far parameters are from plain ones, what is said."""
    module, said = kind(), io.StringIO()
    data = RANKS // plan.strategy.tensor_parallel_degree
    rows = training_rows()
    sampler = DistributedSampler(rows, data, int(os.environ["RANK"]) % data, shuffle=False)
    loader = DataLoader(rows, batch_size=batch, sampler=sampler)
    with contextlib.redirect_stdout(said):
        trainer = lightning.Trainer(**planned_trainer(plan) | changes, **_quiet())
        try:
            trainer.fit(module, loader)
        except InputError as error:
            return {"refusal": str(error)}
    plain, losses = plain_run()
    return {
        "losses": _mean_losses(module.losses),
        "plain_losses": losses,
        "parameter_error": parameter_error(module.model, plain),
        "are_shards": any(isinstance(item, DTensor) for item in module.model.parameters()),
        "said": said.getvalue().splitlines(),
    }


def _quiet() -> dict[str, Any]:
    return {
        "max_steps": STEPS,
        "accelerator": "cpu",
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "use_distributed_sampler": False,  # its own would shuffle
    }


def _mean_losses(mine: list[float]) -> list[float]:
    """Return the mean over ranks and the two micro-batches of each step."""
    losses = torch.tensor(mine).view(STEPS, -1).mean(dim=1)
    distributed.all_reduce(losses)
    return [float(loss) / RANKS for loss in losses]


def main(out: Path) -> None:
    """Write the answers of all runs."""
    torch.set_default_dtype(torch.float64)
    warnings.simplefilter("ignore")
    logging.getLogger("lightning").setLevel(logging.ERROR)
    answers = {
        "replicas": fitted(llama_plan(REPLICAS)),
        "zero3": fitted(llama_plan(ZERO3)),
        "tensor": fitted(llama_plan(TP2), batch=4, kind=SplitModule),
        "unsplit": fitted(llama_plan(TP2), batch=4),
        "accumulation": fitted(llama_plan(ZERO3), accumulate_grad_batches=4),
        "batch": fitted(llama_plan(ZERO3), batch=4),
    }
    if distributed.get_rank() == 0:
        out.write_text(json.dumps(answers), encoding="utf-8")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
