"""The example that fine-tunes from a folder into a folder, on the documented names alone."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from executor.data import corpus_batches
from tests.distributed.families import hugging_face_graph, hugging_face_model
from tests.distributed.forking_launches import ForkingLaunches
from tests.distributed.group import ROOT
from tests.distributed.plans import GLOBAL_BATCH_SIZE, SEQUENCE_LENGTH, cpu_plan

pytestmark = pytest.mark.distributed

EXAMPLE = ROOT / "examples" / "fine_tune.py"
CORPUS = ROOT / "executor" / "corpus" / "shakespeare.txt"
LAST_PLACE = 1.001e-6  # of a printed loss
FP32_LOGITS = 1e-5  # what is left of fp64 where a model is written in fp32


def _pretrained(folder: Path) -> None:
    """Train a small Llama on the shipped corpus with transformers and torch alone, and save it."""
    torch.manual_seed(0)
    model = hugging_face_model("llama", tied=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    batches = corpus_batches(global_batch_size=8, sequence_length=32)
    losses = []
    for inputs, _ in islice(batches, 12):
        loss = model(input_ids=inputs, labels=inputs).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 1.0
    model.save_pretrained(folder)


def _plain_run(script: dict[str, Any], folder: Path) -> tuple[list[float], torch.nn.Module]:
    """Train on the example's own batches with transformers and torch alone, in fp64."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    optimizer = script["optimizer_function"](model.parameters())
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
    return losses, model


def test_the_example_trains_a_pretrained_model_as_plain_torch_does(
    launches: ForkingLaunches, tmp_path: Path
) -> None:
    """It begins far below a random model's loss, and what it writes has the same logits."""
    folder, out = tmp_path / "in", tmp_path / "out"
    _pretrained(folder)
    text = EXAMPLE.read_text(encoding="utf-8")
    in_fp64 = text.replace("\nSTEPS", "\ntorch.set_default_dtype(torch.float64)\nSTEPS")
    assert in_fp64 != text
    (tmp_path / "fine_tune.py").write_text(in_fp64, encoding="utf-8")
    plan = cpu_plan(
        model=hugging_face_graph("llama", tied=False),
        data_parallel_degree=2,
        zero_stage=3,
        micro_batch_size=4,
    )
    (tmp_path / "plan.json").write_text(plan.to_json(), encoding="utf-8")
    words = (str(tmp_path / "fine_tune.py"), str(folder), str(CORPUS), str(out))
    done = launches.launch(tmp_path, str(tmp_path / "plan.json"), "--", *words)
    assert done.returncode == 0, done.stderr
    losses = [float(loss) for loss in re.findall(r"step \d+: loss ([\d.]+)", done.stdout)]
    expected, model = _plain_run(run_path(str(EXAMPLE)), folder)
    assert losses == pytest.approx(expected, abs=LAST_PLACE)
    tokens = torch.arange(32).unsqueeze(0)
    written = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float64)
    torch.testing.assert_close(
        written(input_ids=tokens).logits,
        model(input_ids=tokens).logits,
        rtol=FP32_LOGITS,
        atol=FP32_LOGITS,
    )
