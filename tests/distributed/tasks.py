"""Tasks: what a group of ranks is asked to do. Each returns the same small answer on every rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from executor.apply.materialise import unsplit_name
from executor.data import corpus_batches
from executor.losses import next_token_loss
from executor.models.decoder import Decoder
from executor.session import Session
from executor.telemetry import LiveBytes
from executor.trainer import Trainer
from planner.errors import InputError
from tests.distributed.average_tasks import AVERAGE_TASKS
from tests.distributed.batch_tasks import BATCH_TASKS
from tests.distributed.buffer_tasks import BUFFER_TASKS
from tests.distributed.changing_tasks import CHANGING_TASKS
from tests.distributed.checkpoint_tasks import CHECKPOINT_TASKS
from tests.distributed.core_tasks import kept_cores
from tests.distributed.foreign_tasks import FOREIGN_TASKS
from tests.distributed.kept_tasks import KEPT_TASKS
from tests.distributed.mixture import mixture_model
from tests.distributed.numerics_tasks import NUMERICS_TASKS
from tests.distributed.own_batches import own_batch_parity
from tests.distributed.own_models import (
    own_beginnings,
    own_draws,
    own_parity,
    own_recomputed_draws,
    own_refusal,
)
from tests.distributed.partial_models import PARTIAL_TASKS
from tests.distributed.plans import WIDE_SEQUENCE_LENGTH, cpu_plan, wide_plan
from tests.distributed.products import products_in_32_bits
from tests.distributed.quantized_tasks import QUANTIZED_TASKS
from tests.distributed.reference import (
    MASKED,
    SEED,
    STEP_COUNT,
    adamw,
    build_model,
    class_weights,
    floats_differences,
    global_batches,
    planned_model,
    reference_run,
    sized,
)
from tests.distributed.rounding import bars, relative_error
from tests.distributed.script_tasks import SCRIPT_TASKS
from tests.distributed.state_tasks import STATE_TASKS, remembering, residence
from tests.distributed.weight_tasks import WEIGHT_TASKS

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def parity(
    *,
    strategy: dict[str, Any],
    kind: str = "decoder",
    precision: str = "fp32",
    loss: str = "own",
    masked: bool = False,
) -> dict[str, Any]:
    """Train a few steps and compare with the unsharded run in fp64."""
    gradients: dict[nn.Parameter, torch.Tensor] = {}
    kind = sized(kind, strategy)
    session, trainer = _trainer(
        strategy, kind, precision, loss, on_first_gradients=gradients, masked=masked
    )
    batches = session.shard(global_batches(0, STEP_COUNT, masked=masked))
    metrics = [trainer.step(*batch) for batch in batches]
    drawn_bits = torch.finfo(torch.get_default_dtype()).bits
    weighted = loss == "weighted"
    reference = reference_run(kind, masked=masked, weighted=weighted, drawn_bits=drawn_bits)
    gradient_error = parameter_error = 0.0
    taken = {key: value for update in trainer.updates for key, value in update.pairs()}
    for name, parameter in trainer.model.named_parameters():
        known_as = unsplit_name(name, trainer.declaration)
        gradient = _whole(gradients[taken[parameter]])
        gradient_error = max(
            gradient_error, relative_error(gradient, reference.first_gradients[known_as])
        )
        parameter_error = max(
            parameter_error,
            relative_error(_whole(parameter.detach()), reference.parameters[known_as]),
        )
    is_first = distributed.get_rank() == 0  # whose answer counts
    return {
        "losses": [item.loss for item in metrics],
        "reference_losses": reference.losses,
        "gradient_error": _largest(gradient_error),
        "parameter_error": _largest(parameter_error),
        "differences": _all_differences(session),
        "bars": asdict(bars(kind, precision)) if is_first else None,
    }


def resume(
    *,
    strategy: dict[str, Any],
    first_step: int,
    step_count: int,
    kind: str = "decoder",
    load: str | None = None,
    save: str | None = None,
) -> dict[str, Any]:
    """Train some steps from a checkpoint or from the start, and save at the end."""
    kind = sized(kind, strategy)
    session, trainer = _trainer(strategy, kind, "fp32", "own")
    if load is not None:
        trainer.load(load)
    batches = session.shard(global_batches(0, first_step + step_count))
    losses = [trainer.step(*batch).loss for batch in batches]
    if save is not None:
        trainer.save(save)
    return {
        "losses": losses,
        "reference_losses": reference_run(kind, 6).losses,
        "loss_bar": bars(kind).loss if distributed.get_rank() == 0 else None,
    }


def held(*, strategy: dict[str, Any], kind: str = "decoder") -> dict[str, Any]:
    """Return what every rank holds after one step."""
    session, trainer = _trainer(strategy, kind, "fp32", "own")
    (batch,) = session.shard(global_batches(0, 1))
    trainer.step(*batch)
    report = session.report()
    names = [unsplit_name(name, trainer.declaration) for name, _ in _named(trainer)]
    mine = {
        "stage": report.stage,
        "mesh": report.mesh,
        "parameter_bytes": report.parameter_bytes,
        "names": names,
        "local_shapes": {
            name: list(_local(value).shape)
            for name, (_, value) in zip(names, _named(trainer), strict=True)
        },
    }
    everyone: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(everyone, mine)
    return {"ranks": everyone}


def peak(*, strategy: dict[str, Any]) -> dict[str, Any]:
    """Return the fullest rank's peak of live bytes in a second step."""
    session, trainer = _trainer(strategy, "decoder", "fp32", "own")
    first, second = session.shard(global_batches(0, 2))
    trainer.step(*first)
    trainer.metered_step(*second)
    return {"peak_memory_bytes": _largest(float(session.report().peak_memory_bytes or 0))}


def wide_peaks(
    *, strategy: dict[str, Any], global_batch_size: int, mixture: bool = False
) -> dict[str, Any]:
    """Return every rank's stage and the peak of live bytes in a second step of the wide model."""
    plan = wide_plan(global_batch_size=global_batch_size, mixture=mixture, **strategy)
    session = Session(plan, device=torch.device("cpu"))
    graph = plan.model.resolved
    trainer = session.parallelize(lambda: Decoder(graph), next_token_loss, adamw, seed=SEED)
    batches = corpus_batches(
        global_batch_size=global_batch_size, sequence_length=WIDE_SEQUENCE_LENGTH
    )
    first, second = session.shard(islice(batches, 2))
    with products_in_32_bits():
        trainer.step(*first)
        trainer.metered_step(*second)
    report = session.report()
    mine = {"stage": report.stage, "peak_memory_bytes": report.peak_memory_bytes}
    everyone: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(everyone, mine)
    return {"ranks": everyone}


def mixture_peak(*, checkpointed: bool, reshards: bool, global_batch_size: int) -> dict[str, Any]:
    """Return the fullest rank's peak of live bytes in a second step of transformers' mixture.

    FSDP2 over all ranks in bf16, without the executor, which has no experts.
    """
    torch.manual_seed(SEED)
    model = mixture_model()
    whole = {"mp_policy": MixedPrecisionPolicy(torch.bfloat16, torch.float32)}
    for place, layer in enumerate(model.model.layers):
        kept = checkpoint_wrapper(layer) if checkpointed else layer
        model.model.layers[place] = fully_shard(kept, reshard_after_forward=reshards, **whole)
    for part in (model.model.embed_tokens, [model.model.norm, model.lm_head]):
        fully_shard(part, reshard_after_forward=reshards, **whole)
    fully_shard(model, reshard_after_forward=reshards, **whole)
    optimizer = adamw(model.parameters())
    rows = global_batch_size // distributed.get_world_size()
    step = partial(_mixture_step, model, optimizer, rows=rows)
    with products_in_32_bits():
        step()
        counter = LiveBytes(_held(model, optimizer))
        with counter, counter.resizes():
            step()
    return {"peak_memory_bytes": _largest(float(counter.peak_bytes))}


def _mixture_step(model: nn.Module, optimizer: torch.optim.Optimizer, *, rows: int) -> None:
    optimizer.zero_grad(set_to_none=True)
    for _ in range(2):
        tokens = torch.randint(0, 1024, (rows // 2, WIDE_SEQUENCE_LENGTH))
        next_token_loss(model(input_ids=tokens).logits, tokens).backward()
    optimizer.step()


def _held(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    states = [value for state in optimizer.state.values() for value in state.values()]
    return [*model.parameters(), *(value for value in states if torch.is_tensor(value))]


def collectives(*, strategy: dict[str, Any]) -> dict[str, int]:
    """Return how many collectives of each kind rank 0 runs in forward and backward of a step."""
    session, trainer = _trainer(strategy, "decoder", "fp32", "own")
    first, second = session.shard(global_batches(0, 2))
    trainer.step(*first)
    with CollectiveCounter() as counter:
        trainer.step(*second)
    return dict(counter.counts)


class CollectiveCounter(TorchDispatchMode):
    """Counts collectives of numbers; the scalar that averages the loss is left out."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Count `operator` if it is a collective."""
        del types
        name = COLLECTIVES.get(operator._schema.name)
        tensors = [leaf for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)]
        if name is not None and tensors[0].dim() > 0 and tensors[0].is_floating_point():
            self.counts[name] += 1
        return operator(*args, **(kwargs or {}))


COLLECTIVES = {
    "c10d::_allgather_base_": "all_gather",
    "c10d::_reduce_scatter_base_": "reduce_scatter",
    "c10d::allreduce_": "all_reduce",
}


def refused_load(*, strategy: dict[str, Any], directory: str) -> dict[str, Any]:
    """Return the message with which a trainer refuses the checkpoint in `directory`."""
    _, trainer = _trainer(strategy, "decoder", "fp32", "own")
    try:
        trainer.load(directory)
    except InputError as error:
        return {"error": type(error).__name__, "message": str(error)}
    return {"error": None, "message": ""}


def initial_weights(*, strategy: dict[str, Any], kind: str = "decoder") -> dict[str, Any]:
    """Return a checksum of each whole parameter before any step."""
    _, trainer = _trainer(strategy, kind, "fp32", "own")
    sums = {
        unsplit_name(name, trainer.declaration): _whole(value.detach()).double().sum().item()
        for name, value in _named(trainer)
    }
    everyone: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(everyone, sums)
    return {name: total for part in everyone for name, total in part.items()}


TASKS: dict[str, Callable[..., dict[str, Any]]] = {
    task.__name__: task
    for task in (
        parity,
        resume,
        held,
        peak,
        wide_peaks,
        mixture_peak,
        collectives,
        refused_load,
        initial_weights,
        own_parity,
        own_refusal,
        own_beginnings,
        own_draws,
        own_batch_parity,
        own_recomputed_draws,
        kept_cores,
        *STATE_TASKS,
        *PARTIAL_TASKS,
        *SCRIPT_TASKS,
        *KEPT_TASKS,
        *BUFFER_TASKS,
        *NUMERICS_TASKS,
        *CHANGING_TASKS,
        *CHECKPOINT_TASKS,
        *BATCH_TASKS,
        *WEIGHT_TASKS,
        *FOREIGN_TASKS,
        *QUANTIZED_TASKS,
        *AVERAGE_TASKS,
    )
}

IN_FP32 = {task.__name__ for task in (held, peak, wide_peaks, mixture_peak, residence)}
"""Tasks that count bytes. All others run in fp64 unless asked, where little is left to rounding."""


def _trainer(
    strategy: dict[str, Any],
    kind: str,
    precision: str,
    loss: str,
    *,
    on_first_gradients: dict[nn.Parameter, torch.Tensor] | None = None,
    masked: bool = False,
) -> tuple[Session, Trainer]:
    kind = sized(kind, strategy)
    plan = cpu_plan(model=planned_model(kind), precision=precision, **strategy)
    session = Session(plan, device=torch.device("cpu"))
    losses: dict[str, Loss] = {"own": next_token_loss, "weighted": weighted_loss}
    loss_function = losses.get(loss, foreign_loss)
    trainer = session.parallelize(
        lambda: build_model(kind),
        loss_function,
        adamw if on_first_gradients is None else remembering(on_first_gradients),
        seed=SEED,
        ignored_target=MASKED if masked and loss == "foreign" else None,
    )
    return session, trainer


def weighted_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the loss of a script that weighs targets by class, and says so nowhere."""
    weights = class_weights(logits.shape[-1])
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), weights)


def foreign_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the loss as a user writes it, who has not heard of sharded logits."""
    assert not isinstance(logits, DTensor)
    picked = logits.log_softmax(-1).gather(-1, targets.unsqueeze(-1))
    return -picked.mean()


def _named(trainer: Trainer) -> list[tuple[str, nn.Parameter]]:
    return list(trainer.model.named_parameters())


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _largest(value: float) -> float:
    tensor = torch.tensor(value, dtype=torch.float64)
    distributed.all_reduce(tensor, op=distributed.ReduceOp.MAX)
    return float(tensor)


def _all_differences(session: Session) -> list[str]:
    everyone: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(everyone, list(session.report().differences_from_plan))
    return floats_differences(text for part in everyone for text in part)
