"""Tasks about weights: beginning from files, and getting out into files."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_model
from torch import distributed, nn
from torch.nn import functional
from transformers import AutoConfig, AutoModelForCausalLM

from executor.apply.materialise import unsplit_name
from executor.apply.whole_tensor import whole_tensor
from executor.losses import next_token_loss
from executor.session import Session
from executor.trainer import Trainer
from executor.weights import Weights
from tests.distributed.own_models import KINDS, batches, loss
from tests.distributed.plans import cpu_plan
from tests.distributed.reference import (
    SEED,
    STEP_COUNT,
    adamw,
    floats_differences,
    global_batches,
    planned_model,
)
from tests.distributed.rounding import relative_error
from tests.distributed.state_tasks import everyone


def fine_tuned(
    *, strategy: dict[str, Any], kind: str, folder: str, out: str, max_file_bytes: int = 10**9
) -> dict[str, Any]:
    """Train from `folder`, export to `out`, and compare both with plain torch from there."""
    session = Session(cpu_plan(model=planned_model(kind), **strategy), device=torch.device("cpu"))
    trainer = session.parallelize(
        lambda: from_config(folder), next_token_loss, adamw, weights=folder
    )
    losses = [trainer.step(*batch).loss for batch in session.shard(global_batches(0, STEP_COUNT))]
    trainer.export(out, dtype=torch.float64, max_file_bytes=max_file_bytes)
    reference = plain_fine_tuned(folder)
    answer: dict[str, Any] = {
        "losses": losses,
        "reference_losses": reference.losses,
        "differences": floats_differences(everyone(list(session.report().differences_from_plan))),
    }
    if distributed.get_rank() == 0:
        answer |= compared_folder(Path(out), reference.model)
    distributed.barrier()
    return answer


class PlainRun:
    """A model after some steps of plain torch, and their losses."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        optimizer = adamw(model.parameters())
        self.losses: list[float] = []
        for inputs, targets in global_batches(0, STEP_COUNT):
            optimizer.zero_grad()
            logits = model(input_ids=inputs).logits
            loss = functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
            loss.backward()
            optimizer.step()
            self.losses.append(loss.item())


@functools.cache
def plain_fine_tuned(folder: str) -> PlainRun:
    """Return what transformers and torch alone make of the weights in `folder`."""
    return PlainRun(from_pretrained(folder))


def from_pretrained(folder: str | Path) -> nn.Module:
    """Return transformers' own model of a folder, in fp64."""
    model: nn.Module = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float64, attn_implementation="sdpa", experts_implementation="eager"
    )
    return model


def from_config(folder: str) -> nn.Module:
    """Return the model of a folder's configuration, as a script builds it."""
    model: nn.Module = AutoModelForCausalLM.from_config(
        AutoConfig.from_pretrained(folder),
        attn_implementation="sdpa",
        experts_implementation="eager",
    )
    return model


def compared_folder(out: Path, expected: nn.Module) -> dict[str, Any]:
    """Return how far what transformers loads from `out` is from `expected`."""
    loaded, info = AutoModelForCausalLM.from_pretrained(
        out, dtype="auto", experts_implementation="eager", output_loading_info=True
    )
    found = dict(loaded.named_parameters())
    errors = [
        relative_error(found[name].detach(), value.detach())
        for name, value in expected.named_parameters()
    ]
    ((inputs, _),) = global_batches(9, 1)
    logits, wanted = loaded(input_ids=inputs).logits, expected(input_ids=inputs).logits
    return {
        "files": sorted(path.name for path in out.iterdir()),
        "loading": {name: sorted(map(str, value)) for name, value in info.items() if value},
        "class": type(loaded).__name__,
        "parameter_error": max(errors),
        "logit_error": relative_error(logits.detach(), wanted.detach()),
    }


def own_fine_tuned(*, strategy: dict[str, Any], kind: str, folder: str, out: str) -> dict[str, Any]:
    """Train a user's own module from a file of its own, export it, and compare with its plain run.

    The file has buffers too, other than the module is built with.
    """
    build, declaration = KINDS[kind]
    torch.manual_seed(7)
    module = build()
    with torch.no_grad():
        for buffer in module.buffers():
            if buffer.is_floating_point():
                buffer.mul_(0.5)
    if distributed.get_rank() == 0:
        save_model(module, str(Path(folder) / "model.safetensors"))
    distributed.barrier()
    session = Session(cpu_plan(**strategy), device=torch.device("cpu"))
    trainer = session.parallelize(
        build, loss, adamw, declaration=declaration, weights=folder, seed=SEED
    )
    losses = [trainer.step(*batch).loss for batch in session.shard(batches(kind))]
    trainer.export(out, dtype=torch.float64)
    plain_losses = _train(module, kind)
    answer = {"losses": losses, "reference_losses": plain_losses, "error": 0.0}
    if distributed.get_rank() == 0:
        files = [load_file(path) for path in sorted(Path(out).glob("*.safetensors"))]
        written = {name: value for file in files for name, value in file.items()}
        expected = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        answer["names"] = sorted(written.keys() ^ expected.keys())
        answer["error"] = max(relative_error(written[name], expected[name]) for name in written)
    distributed.barrier()
    return answer


def adapted(*, strategy: dict[str, Any], kind: str, folder: str, out: str) -> dict[str, Any]:
    """Train LoRA on the weights in `folder`, export both ways, and compare with plain PEFT."""
    plan = cpu_plan(model=planned_model(kind), adapters={"rank": 4}, **strategy)
    session = Session(plan, device=torch.device("cpu"))
    trainer = session.parallelize(
        lambda: with_lora(from_config(folder)), next_token_loss, adamw, weights=folder, seed=SEED
    )
    begun = adapters_of(trainer)
    losses = [trainer.step(*batch).loss for batch in session.shard(global_batches(0, STEP_COUNT))]
    answer: dict[str, Any] = {
        "losses": losses,
        "differences": floats_differences(everyone(list(session.report().differences_from_plan))),
        "trained": sorted(n for n, p in trainer.model.named_parameters() if p.requires_grad),
    }
    trainer.export(f"{out}/adapters", dtype=torch.float64)
    trainer.export(f"{out}/merged", dtype=torch.float64, merged=True)
    again = Session(plan, device=torch.device("cpu"), mesh=session.mesh).parallelize(
        lambda: with_lora(from_config(folder)),
        next_token_loss,
        adamw,
        weights=f"{out}/adapters",
        seed=SEED + 1,
    )
    trained = adapters_of(trainer)
    answer["begun_again_error"] = max(
        relative_error(value, trained[name]) for name, value in adapters_of(again).items()
    )
    again.export(f"{out}/again")
    answer["base_again"] = _base_of(f"{out}/again")
    if distributed.get_rank() == 0:
        answer |= _compared_adapters(folder, Path(out), begun)
    distributed.barrier()
    return answer


def _base_of(folder: str) -> str:
    text = Path(folder, "adapter_config.json").read_text(encoding="utf-8")
    return str(json.loads(text)["base_model_name_or_path"])


ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")


def with_lora(model: nn.Module) -> nn.Module:
    """Return the model with PEFT's adapters beside every linear of its blocks.

    Of mixtures that is attention's: transformers has experts, and their router, as no linears.
    """
    is_mixture = any("expert" in name for name, _ in model.named_parameters())
    targets = list(ATTENTION) if is_mixture else "all-linear"
    config = LoraConfig(r=4, lora_alpha=16, target_modules=targets)
    wrapped: nn.Module = get_peft_model(model, config, autocast_adapter_dtype=False)
    return wrapped


def adapters_of(trainer: Trainer) -> dict[str, torch.Tensor]:
    """Return all adapters, whole, by their names in the unsplit model."""
    held = {
        unsplit_name(name, trainer.declaration): whole_tensor(item, torch.device("cpu")).clone()
        for name, item in trainer.model.named_parameters()
        if ".lora_" in name
    }
    return {name: value for part in everyone([held]) for name, value in part.items()}


def _compared_adapters(folder: str, out: Path, begun: dict[str, torch.Tensor]) -> dict[str, Any]:
    plain = with_lora(from_pretrained(folder))
    values = dict(plain.get_base_model().named_parameters())
    with torch.no_grad():
        for name, value in begun.items():
            values[name].copy_(value)
    run = PlainRun(plain)
    loaded = PeftModel.from_pretrained(from_pretrained(folder), out / "adapters")
    found = dict(loaded.get_base_model().named_parameters())
    ((inputs, _),) = global_batches(9, 1)
    wanted = plain(input_ids=inputs).logits
    merged = from_pretrained(out / "merged")(input_ids=inputs).logits
    return {
        "reference_losses": run.losses,
        "adapter_names": sorted(begun),
        "first_b": max(float(v.abs().max()) for n, v in begun.items() if ".lora_B." in n),
        "parameter_error": max(relative_error(found[n], values[n].detach()) for n in values),
        "logit_error": relative_error(loaded(input_ids=inputs).logits.detach(), wanted.detach()),
        "merged_error": relative_error(merged.detach(), wanted.detach()),
    }


def _train(module: nn.Module, kind: str) -> list[float]:
    optimizer = adamw(module.parameters())
    losses = []
    for inputs, targets in batches(kind):
        optimizer.zero_grad()
        value = loss(module(inputs), targets)
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses


def begun(*, folder: str, kind: str) -> dict[str, Any]:
    """Return which tensors are other than the folder has them, however they are handed over.

    A state dict, a model that `build_model` loads itself, and a head that is to be drawn anew.
    """
    expected = from_pretrained(folder)

    def loaded() -> nn.Module:
        with torch.device("cpu"):
            return from_pretrained(folder)

    ways: dict[str, tuple[Callable[[], nn.Module], Any]] = {
        "state dict": (lambda: from_config(folder), expected.state_dict()),
        "loaded": (loaded, None),
        "new head": (lambda: from_config(folder), Weights(source=folder, new=("lm_head.*",))),
    }
    answer: dict[str, Any] = {}
    for way, (build, weights) in ways.items():
        plan = cpu_plan(model=planned_model(kind), data_parallel_degree=2, zero_stage=3)
        session = Session(plan, device=torch.device("cpu"))
        trainer = session.parallelize(build, next_token_loss, adamw, weights=weights)
        answer[way] = sorted(_others(trainer, dict(expected.named_parameters())))
    return answer


def _others(trainer: Trainer, expected: dict[str, torch.Tensor]) -> Iterator[str]:
    for given, parameter in trainer.model.named_parameters():
        name = unsplit_name(given, trainer.declaration)
        found = whole_tensor(parameter, torch.device("cpu"))
        if not torch.equal(found, expected[name].detach().view_as(found)):
            yield name


WEIGHT_TASKS: tuple[Callable[..., dict[str, Any]], ...] = (
    fine_tuned,
    own_fine_tuned,
    begun,
    adapted,
)
