"""Declared: whatever model a script builds, and what it declares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from executor.apply.whole import check_whole
from executor.errors import ModelMismatchError
from executor.models.declaration import ModelDeclaration
from executor.models.decoder import Decoder
from executor.models.forward_inputs import ForwardInputs
from executor.models.huggingface import (
    HUGGING_FACE_CLASSES,
    hugging_face_chain,
    is_hugging_face,
)
from executor.models.initial_state import InitialState
from executor.models.own import Declaration, OwnModel
from planner.schema.job import Job
from planner.schema.strategy import Strategy

Known = tuple[nn.Module, ModelDeclaration]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The model that a plan is applied to: a chain, or a module that stays whole.

    A chain lies on the meta device. What declares nothing lies on the CPU with its values, since
    nothing is known of how it begins. `initial_state` is to be forgotten once it is applied.
    """

    model: nn.Module
    declaration: ModelDeclaration
    initial_state: InitialState


def subject(
    build_model: Callable[[], nn.Module],
    *,
    own: Declaration | None,
    strategy: Strategy,
    job: Job,
    seed: int,
) -> Subject:
    """Return the model as the plan's techniques can take it.

    Raises:
        UnsupportedPlanError: if the plan asks for what is not declared.
        ModelMismatchError: if the declaration does not go with the model.
    """
    with torch.device("meta"):
        built = build_model()
    if not isinstance(built, nn.Module):
        raise ModelMismatchError(
            "must return a torch.nn.Module",
            field="build_model",
            value=type(built).__qualname__,
            remedy="return the model itself",
        )
    state = InitialState(build_model, seed=seed)
    if own is not None:
        return _own(OwnModel(module=built, declaration=own, initial_state=state), strategy, job)
    known = _known(built)
    if known is not None:
        return Subject(model=known[0], declaration=known[1], initial_state=state)
    check_whole(built, strategy)
    declaration = ModelDeclaration.whole(state.value, ForwardInputs.of_module(built))
    return Subject(model=state.module(), declaration=declaration, initial_state=state)


def declared(model: nn.Module) -> Known:
    """Return `model` as a chain that can lose parts, and what it declares.

    Raises:
        ModelMismatchError: if the model's class declares nothing.
    """
    known = _known(model)
    if known is not None:
        return known
    raise ModelMismatchError(
        "declares no sharding",
        field="build_model",
        value=type(model).__qualname__,
        remedy="pass declaration=meshwright.Declaration(...) to parallelize(), or build "
        f"executor.models.decoder.Decoder or one of {', '.join(HUGGING_FACE_CLASSES)}",
    )


def _known(model: nn.Module) -> Known | None:
    """Return the chain and declaration of a class that we know, `None` for any other."""
    if isinstance(model, Decoder):
        return model, model.declaration()
    if is_hugging_face(model):
        return hugging_face_chain(model)
    return None


def _own(model: OwnModel, strategy: Strategy, job: Job) -> Subject:
    declaration = model.declared()
    model.check_tensor_parallel(
        strategy.tensor_parallel_degree, sequence_parallel=strategy.sequence_parallel
    )
    model.check_context_parallel(strategy.context_parallel_degree, strategy.context_parallel_kind)
    chain = model.module
    if strategy.pipeline_parallel_degree > 1:
        tokens = (strategy.micro_batch_size, job.sequence_length or 1)
        chain = model.pipelined(torch.zeros(tokens, dtype=torch.long, device="meta"))
    return Subject(model=chain, declaration=declaration, initial_state=model.initial_state)
