"""The example that fine-tunes, and what transformers and torch alone make of its batches."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from runpy import run_path

import torch

from tests.distributed.group import ROOT
from tests.distributed.plans import GLOBAL_BATCH_SIZE, SEQUENCE_LENGTH

EXAMPLE = ROOT / "examples" / "fine_tune.py"
CORPUS = ROOT / "executor" / "corpus" / "shakespeare.txt"
LAST_PLACE = 1.001e-6  # of a printed loss
FP32_LOGITS = 1e-5  # what is left of fp64 where a model is written in fp32


def in_fp64() -> str:
    """The example's text, training in fp64."""
    text = EXAMPLE.read_text(encoding="utf-8")
    changed = text.replace("\nSTEPS", "\ntorch.set_default_dtype(torch.float64)\nSTEPS")
    assert changed != text
    return changed


def plain_losses(folder: Path, model: torch.nn.Module) -> list[float]:
    """Train `model` on the example's own batches, without a plan."""
    script = run_path(str(EXAMPLE))
    optimizer = script["optimizer_function"](p for p in model.parameters() if p.requires_grad)
    loader = script["batches"](
        script["tokens_of"](CORPUS, folder), batch=GLOBAL_BATCH_SIZE, length=SEQUENCE_LENGTH
    )
    losses = []
    for inputs, targets in islice(loader, script["STEPS"]):
        loss = script["loss_function"](model(input_ids=inputs).logits, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
