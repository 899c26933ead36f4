"""Script: trains every layout of a matrix in fp64 on the launcher's ranks, and compares.

Run as `executor.launcher PLAN -- gpu_parity.py MATRIX ANSWER`: MATRIX names strategies in JSON, and
rank 0 writes to ANSWER how far each is from the unsharded run on one device of the same kind.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.tensor import DTensor
from torch.nn import functional

import executor
from executor.apply.materialise import materialise, unsplit_name
from executor.host_memory import like, plain
from executor.losses import next_token_loss
from executor.models.decoder import Decoder, initial_value
from executor.models.first_values import DrawnValues
from executor.session import Session
from planner.schema.strategy import Strategy
from tests.distributed.plans import BLOCK_COUNT, GLOBAL_BATCH_SIZE, small_model
from tests.distributed.reference import (
    SEED,
    STEP_COUNT,
    adamw,
    floats_differences,
    floats_of,
    global_batches,
)

Named = dict[str, torch.Tensor]


def unsharded(device: torch.device) -> tuple[list[float], Named, Named]:
    """Return losses, first gradients and trained parameters of the whole model on `device`."""
    model = Decoder(small_model())
    values = DrawnValues(initial_value, seed=SEED)
    materialise(model, declaration=model.declaration(), device=device, values=values)
    optimizer = adamw(model.parameters())
    losses: list[float] = []
    gradients: Named = {}
    for inputs, targets in global_batches(0, STEP_COUNT):
        optimizer.zero_grad()
        logits = model(inputs.to(device)).flatten(0, 1)
        loss = functional.cross_entropy(logits, targets.to(device).flatten())
        loss.backward()
        if not losses:
            gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
        optimizer.step()
        losses.append(loss.item())
    return losses, gradients, {name: p.detach() for name, p in model.named_parameters()}


def compared(session: Session, reference: tuple[list[float], Named, Named]) -> dict[str, Any]:
    """Train the session's layout and return its largest relative errors, alike on all ranks."""
    losses, gradients, parameters = reference
    seen: dict[nn.Parameter, torch.Tensor] = {}

    def optimizer_function(own: list[nn.Parameter]) -> torch.optim.Optimizer:
        optimizer = adamw(own)
        optimizer.register_step_pre_hook(lambda *_: _remember(own, seen))
        return optimizer

    model = small_model()
    trainer = session.parallelize(
        lambda: Decoder(model), next_token_loss, optimizer_function, seed=SEED
    )
    batches = session.shard(global_batches(0, STEP_COUNT))
    metrics = [trainer.step(*batch) for batch in batches]
    errors = torch.zeros(3, device=session.device)
    for found, expected in zip(metrics, losses, strict=True):
        errors[0] = max(errors[0].item(), abs(found.loss - expected) / expected)
    taken = dict(pair for update in trainer.updates for pair in update.pairs())
    for name, parameter in trainer.model.named_parameters():
        known_as = unsplit_name(name, trainer.declaration)
        gradient = _relative(seen[taken[parameter]], gradients[known_as])
        trained = _relative(parameter.detach(), parameters[known_as])
        errors[1] = max(errors[1].item(), gradient)
        errors[2] = max(errors[2].item(), trained)
    distributed.all_reduce(errors, op=distributed.ReduceOp.MAX)
    loss, gradient, trained = errors.tolist()
    return {
        "loss_error": loss,
        "gradient_error": gradient,
        "parameter_error": trained,
        "peak_memory_bytes": trainer.peak_memory_bytes(),
        "differences": floats_differences(session.report().differences_from_plan),
    }


def _remember(parameters: list[nn.Parameter], seen: dict[nn.Parameter, torch.Tensor]) -> None:
    for parameter in parameters:
        if parameter.grad is not None:
            seen.setdefault(parameter, parameter.grad.detach().clone())


def _relative(actual: torch.Tensor, expected: torch.Tensor) -> float:
    # What is offloaded lies on the host, where NCCL gathers nothing.
    here = like(plain(actual).to(expected.device), actual)
    whole = here.full_tensor() if isinstance(here, DTensor) else here
    return float((whole - expected).abs().max() / expected.abs().max())


def main() -> None:
    """Compare all layouts; the session that the launcher reports is the first, and comes last."""
    matrix = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    first = executor.start()
    with floats_of(64):
        reference = unsharded(first.device)
        answers = {}
        for name, fields in matrix.items():
            strategy = Strategy(**fields).resolved(
                block_count=BLOCK_COUNT, global_batch_size=GLOBAL_BATCH_SIZE
            )
            plan = first.plan.model_copy(update={"strategy": strategy})
            answers[name] = compared(Session(plan, device=first.device), reference)
        answers["of-the-plan"] = compared(first, reference)
    if distributed.get_rank() == 0:
        Path(sys.argv[2]).write_text(json.dumps(answers), encoding="utf-8")


if __name__ == "__main__":
    main()
