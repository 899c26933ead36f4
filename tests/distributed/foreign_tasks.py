"""Tasks in which another framework runs a plan, and the plain run that it must equal."""

# ruff: noqa: PLC0415 - the frameworks take seconds to import, and one test each needs them

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.distributed.tensor import DTensor
from torch.utils.data import DataLoader

from planner.schema.plan import Plan
from tests.distributed.families import hugging_face_graph, hugging_face_model
from tests.distributed.plans import cpu_plan
from tests.distributed.reference import EPSILON, LEARNING_RATE, SEED, global_batches

STEPS = 3


def hugging_face_trainer(*, strategy: dict[str, Any], adapted: bool = False) -> dict[str, Any]:
    """Train a Llama, or adapters of experts, in the Trainer; compare with plain torch."""
    from transformers import Trainer, TrainingArguments

    from meshwright.integrations.hugging_face import PlanCallback, planned_arguments

    plan = adapted_plan(strategy) if adapted else llama_plan(strategy)
    model = adapted_mixture() if adapted else loaded_llama(plan)
    rows = [{"input_ids": row, "labels": row} for row in training_rows()]
    arguments = TrainingArguments("unused", **planned_arguments(plan), **plain_trainer())
    trainer = Trainer(model, arguments, train_dataset=rows, callbacks=[PlanCallback(plan)])
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        trainer.train()
    plain, losses = plain_run(adapted_mixture if adapted else llama)
    return {
        "said": [line for line in said.getvalue().splitlines() if not line.startswith("{")],
        "losses": [entry["loss"] for entry in trainer.state.log_history if "loss" in entry],
        "plain_losses": losses,
        "parameter_error": parameter_error(trainer.model, plain),
        "kinds": sorted({type(item).__name__ for item in trainer.model_wrapped.parameters()}),
    }


def trainer_of_varied_rows(*, strategy: dict[str, Any]) -> dict[str, Any]:
    """Train on rows grouped by length, evaluating after each step; repeat it in plain torch."""
    from transformers import Trainer, TrainingArguments

    from meshwright.integrations.hugging_face import PlanCallback, planned_arguments

    plan = llama_plan(strategy)
    own = {
        "train_sampling_strategy": "group_by_length",
        "dataloader_drop_last": True,
        "eval_strategy": "steps",
        "eval_steps": 1,
        "remove_unused_columns": False,  # what is trained on is marked
        "per_device_eval_batch_size": plan.strategy.micro_batch_size,
    }
    arguments = TrainingArguments("unused", **planned_arguments(plan), **plain_trainer() | own)
    evaluated = [{"input_ids": row} for row in next(iter(global_batches(9, 1)))[0]]
    collator = PaddingCollator()
    trainer = Trainer(
        llama(),
        arguments,
        data_collator=collator,
        compute_loss_func=loss_in_double,
        train_dataset=[{"input_ids": row, "is_trained": True} for row in rows_of_many_lengths()],
        eval_dataset=evaluated,
        callbacks=[PlanCallback(plan)],
    )
    with contextlib.redirect_stdout(io.StringIO()):
        trainer.train()
    steps = _rows_of_steps(collator.seen, plan.strategy.micro_batch_count or 1)
    plain, losses, eval_losses = _plain_run_of_rows(steps, [row["input_ids"] for row in evaluated])
    history = trainer.state.log_history
    return {
        "losses": [entry["loss"] for entry in history if "loss" in entry],
        "plain_losses": losses,
        "eval_losses": [entry["eval_loss"] for entry in history if "eval_loss" in entry],
        "plain_eval_losses": eval_losses,
        "row_counts": [len(rows) for rows in steps],
        "token_counts": [sum(map(len, rows)) for rows in steps],
        "parameter_error": parameter_error(trainer.model, plain),
    }


def loss_in_double(
    outputs: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor
) -> torch.Tensor:
    """Return the sum over its tokens, over those of the batch; transformers' is in fp32."""
    logits, following = outputs.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
    total = nn.functional.cross_entropy(logits, following, reduction="sum")
    return total / num_items_in_batch


def rows_of_many_lengths() -> list[torch.Tensor]:
    """Return rows of 4 to 16 tokens: for two ranks ten batches of two rows, and a row beyond."""
    rows = training_rows()[:21]
    return [row[: 4 + 5 * index % 13] for index, row in enumerate(rows)]


class PaddingCollator:
    """Pads rows on the right, and notes those that are trained on."""

    def __init__(self) -> None:
        self.seen: list[list[list[int]]] = []

    def __call__(self, rows: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        """Return a batch with a mask, whose padding has no labels."""
        tokens = [row["input_ids"] for row in rows]
        if "is_trained" in rows[0]:
            self.seen.append([item.tolist() for item in tokens])
        padded = nn.utils.rnn.pad_sequence(tokens, batch_first=True)
        ones = [torch.ones_like(item) for item in tokens]
        mask = nn.utils.rnn.pad_sequence(ones, batch_first=True)
        labels = padded.masked_fill(mask == 0, -100)
        return {"input_ids": padded, "attention_mask": mask, "labels": labels}


def _rows_of_steps(seen: list[list[list[int]]], batch_count: int) -> list[list[torch.Tensor]]:
    """Return the rows of each step of an epoch, of all ranks, from what each rank has read."""
    every: list[list[list[list[int]]]] = [[] for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather_object(every, seen)
    return [
        [
            torch.tensor(row)
            for batches in every
            for batch in batches[first : first + batch_count]
            for row in batch
        ]
        for first in range(0, len(seen), batch_count)
    ]


def _plain_run_of_rows(
    steps: list[list[torch.Tensor]], evaluated: list[torch.Tensor]
) -> tuple[nn.Module, list[float], list[float]]:
    """Train row by row, without padding; return each step's loss a token, and the evaluated."""
    model, losses, eval_losses = llama(), [], []
    optimizer = undecayed(model.parameters())
    for rows in steps:
        optimizer.zero_grad()
        loss = _loss_a_token(model, rows)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        with torch.no_grad():
            eval_losses.append(_loss_a_token(model, evaluated).item())
    return model, losses, eval_losses


def _loss_a_token(model: nn.Module, rows: list[torch.Tensor]) -> torch.Tensor:
    sums = [
        nn.functional.cross_entropy(
            model(input_ids=row[None]).logits[0, :-1], row[1:], reduction="sum"
        )
        for row in rows
    ]
    return torch.stack(sums).sum() / sum(len(row) - 1 for row in rows)


def llama_plan(strategy: dict[str, Any]) -> Plan:
    """Return the plan of `strategy` for a small Llama of transformers."""
    return cpu_plan(model=hugging_face_graph("llama", tied=False), **strategy)


def llama() -> nn.Module:
    """Return the Llama, with the same first values each time."""
    torch.manual_seed(SEED)
    return hugging_face_model("llama", tied=False)


def adapted_plan(strategy: dict[str, Any]) -> Plan:
    """Return the plan of `strategy` for adapters of a small Mixtral."""
    graph = hugging_face_graph("mixtral", tied=False)
    return cpu_plan(model=graph, adapters={"rank": 4}, **strategy)


def adapted_mixture() -> nn.Module:
    """Return a Mixtral with LoRA of queries and of its experts' weights, alike each time."""
    torch.manual_seed(SEED)
    config = LoraConfig(
        r=4,
        target_modules=["q_proj"],
        target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"],
    )
    model = hugging_face_model("mixtral", tied=False)
    wrapped: nn.Module = get_peft_model(model, config, autocast_adapter_dtype=False)
    return wrapped


def loaded_llama(plan: Plan) -> nn.Module:
    """Return the Llama, loaded from files where transformers is to split it at load."""
    from transformers import AutoModelForCausalLM

    from meshwright.integrations.hugging_face import planned_loading

    arguments = planned_loading(plan)
    if not arguments:
        return llama()
    folder = [tempfile.mkdtemp()]
    torch.distributed.broadcast_object_list(folder)
    llama().save_pretrained(folder[0])  # rank 0 writes
    torch.distributed.barrier()
    model: nn.Module = AutoModelForCausalLM.from_pretrained(
        folder[0], dtype=torch.get_default_dtype(), **arguments
    )
    torch.distributed.barrier()
    shutil.rmtree(folder[0], ignore_errors=True)
    return model


def accelerate_loop(*, strategy: dict[str, Any], maximum_norm: float) -> dict[str, Any]:
    """Train a Llama in a loop of Accelerate's; compare it with the same loop in plain torch.

    Rows of a batch are each rank's in turn, as Accelerate's loaders give them.
    """
    from meshwright.integrations.accelerate import PlannedAccelerator

    plan = llama_plan(strategy)
    _fresh_accelerate_state()
    model, rows = llama().eval(), training_rows()  # as from_pretrained leaves it
    optimizer = undecayed(model.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    loader = DataLoader(rows, batch_size=plan.strategy.micro_batch_size)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        accelerator = PlannedAccelerator(plan, cpu=True, step_scheduler_with_optimizer=False)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        norms = []
        for inputs in loader:
            with accelerator.accumulate(model):
                accelerator.backward(model(input_ids=inputs, labels=inputs).loss)
                if accelerator.sync_gradients:
                    norms.append(accelerator.clip_grad_norm_(model.parameters(), maximum_norm))
                optimizer.step()
                if accelerator.sync_gradients:
                    schedule.step()
                optimizer.zero_grad()
        print(accelerator.run.last_line())  # noqa: T201
    plain, plain_norms = plain_clipped_run(maximum_norm)
    return {
        "said": said.getvalue().splitlines(),
        "norms": [float(_whole(norm)) for norm in norms],
        "plain_norms": plain_norms,
        "parameter_error": parameter_error(accelerator.unwrap_model(model), plain),
        "kinds": sorted({type(item).__name__ for item in model.parameters()}),
    }


def plain_clipped_run(maximum_norm: float) -> tuple[nn.Module, list[float]]:
    """Train on the same rows in plain torch, with clipping and the schedule; return the norms."""
    model, norms = llama(), []
    optimizer = undecayed(model.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    for inputs, _ in global_batches(0, STEPS):
        optimizer.zero_grad()
        model(input_ids=inputs, labels=inputs).loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), maximum_norm)
        optimizer.step()
        schedule.step()
        norms.append(norm.item())
    return model, norms


def training_rows() -> list[torch.Tensor]:
    """Return the tokens of all sequences, in order."""
    return [row for inputs, _ in global_batches(0, STEPS) for row in inputs]


def undecayed(parameters: Any) -> torch.optim.Optimizer:
    """Return AdamW without decay, of which the Trainer leaves out norms."""
    return torch.optim.AdamW(parameters, lr=LEARNING_RATE, eps=EPSILON, weight_decay=0.0)


def plain_trainer(*, use_cpu: bool = True) -> dict[str, Any]:
    """Return what of a script's own arguments makes steps plain."""
    return {
        "use_cpu": use_cpu,
        "max_steps": STEPS,
        "logging_steps": 1,
        "report_to": [],
        "save_strategy": "no",
        "learning_rate": LEARNING_RATE,
        "adam_epsilon": EPSILON,
        "weight_decay": 0.0,
        "lr_scheduler_type": "constant",
        "train_sampling_strategy": "sequential",
        "max_grad_norm": 0.0,
        "disable_tqdm": True,
    }


def _fresh_accelerate_state() -> None:
    """Have Accelerate see the ranks anew, of which an earlier task may have told it otherwise."""
    from accelerate.state import AcceleratorState, PartialState

    os.environ.pop("ACCELERATE_USE_FSDP", None)
    AcceleratorState._reset_state(reset_partial_state=True)
    PartialState(cpu=True)


def plain_run(build: Callable[[], nn.Module] = llama) -> tuple[nn.Module, list[float]]:
    """Train on the same rows with transformers and torch alone, on one rank."""
    model, losses = build(), []
    optimizer = undecayed(model.parameters())
    for inputs, _ in global_batches(0, STEPS):
        loss = model(input_ids=inputs, labels=inputs).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model, losses


def parameter_error(model: nn.Module, plain: nn.Module) -> float:
    """Return the largest difference of a parameter, relative to the largest value of it."""
    found = {_bare(name): item for name, item in model.named_parameters()}
    expected = dict(plain.named_parameters())
    assert found.keys() == expected.keys()
    errors = [
        (_whole(found[name]) - item).abs().max() / item.abs().max()
        for name, item in expected.items()
    ]
    return float(torch.stack(errors).max())


def _bare(name: str) -> str:
    return name.replace("_checkpoint_wrapped_module.", "")


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


FOREIGN_TASKS: tuple[Callable[..., Mapping[str, Any]], ...] = (
    hugging_face_trainer,
    trainer_of_varied_rows,
    accelerate_loop,
)
