"""Fine-tune a model of transformers from one folder into another, under a plan.

    meshwright plan llama/config.json CLUSTER --out plan.json
    meshwright run plan.json -- examples/fine_tune.py llama/ text.txt tuned/

`tuned/` is what `AutoModelForCausalLM.from_pretrained("tuned/")` reads, or PEFT's folder of
adapters where the plan's job has `adapters`. The text is cut into tokens by the folder's tokenizer,
and into bytes where it has none.
"""
# ruff: noqa: INP001, T201 - a script, which prints

import sys
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

import meshwright

STEPS = 3


def build_model(folder: Path, rank: int | None) -> nn.Module:
    """Return the model without its values, which `weights` brings; with adapters of a `rank`."""
    model = AutoModelForCausalLM.from_config(
        AutoConfig.from_pretrained(folder), attn_implementation="sdpa"
    )
    if rank is None:
        return model
    from peft import LoraConfig, get_peft_model  # noqa: PLC0415 - only adapters need it

    return get_peft_model(model, LoraConfig(r=rank, target_modules="all-linear"))


def loss_function(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy over tokens."""
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def optimizer_function(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Return the optimizer."""
    return torch.optim.AdamW(parameters, lr=1e-3, eps=1e-4)


def tokens_of(text: Path, folder: Path) -> torch.Tensor:
    """Return the tokens of a text."""
    if not (folder / "tokenizer_config.json").is_file():
        return torch.tensor(list(text.read_bytes()))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return tokenizer(text.read_text(encoding="utf-8"), return_tensors="pt").input_ids[0]


def batches(
    tokens: torch.Tensor, *, batch: int, length: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield global batches: tokens, and for each the one that follows."""
    size = batch * length
    for first in range(0, len(tokens) - size, size):
        taken = tokens[first : first + size + 1]
        yield taken[:-1].view(batch, length), taken[1:].view(batch, length)


def main() -> None:
    """Train a few steps and write the model."""
    folder, text, out = (Path(word) for word in sys.argv[1:4])
    session = meshwright.start()
    job = session.plan.job.resolved
    trainer = session.parallelize(
        partial(build_model, folder, job.adapters.rank if job.adapters else None),
        loss_function,
        optimizer_function,
        weights=folder,
    )
    loader = batches(
        tokens_of(text, folder), batch=job.global_batch_size, length=job.sequence_length
    )
    for step, (inputs, targets) in zip(range(STEPS), session.shard(loader), strict=False):
        loss = trainer.step(inputs, targets).loss
        if torch.distributed.get_rank() == 0:
            print(f"step {step + 1}: loss {loss:.6f}")
    trainer.export(out)


if __name__ == "__main__":
    main()
