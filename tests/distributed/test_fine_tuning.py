"""The example that fine-tunes from a folder into a folder, on the documented names alone."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from executor.data import corpus_batches
from tests.distributed.families import hugging_face_graph, hugging_face_model
from tests.distributed.fine_tuning import (
    CORPUS,
    FP32_LOGITS,
    LAST_PLACE,
    in_fp64,
    plain_losses,
)
from tests.distributed.forking_launches import ForkingLaunches
from tests.distributed.plans import cpu_plan

pytestmark = pytest.mark.distributed


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


def test_the_example_trains_a_pretrained_model_as_plain_torch_does(
    launches: ForkingLaunches, tmp_path: Path
) -> None:
    """It begins far below a random model's loss, and what it writes has the same logits."""
    folder, out = tmp_path / "in", tmp_path / "out"
    _pretrained(folder)
    (tmp_path / "fine_tune.py").write_text(in_fp64(), encoding="utf-8")
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
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    assert losses == pytest.approx(plain_losses(folder, model), abs=LAST_PLACE)
    tokens = torch.arange(32).unsqueeze(0)
    written = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float64)
    torch.testing.assert_close(
        written(input_ids=tokens).logits,
        model(input_ids=tokens).logits,
        rtol=FP32_LOGITS,
        atol=FP32_LOGITS,
    )
