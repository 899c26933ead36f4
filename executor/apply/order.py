"""Order: how techniques compose. Read it top to bottom; each line needs those above it.

1. The model is built on the meta device: shapes without storage.
2. Split first, so that no later step spends time on blocks of other stages.
   Linears that multiply in 8 bits take the place of others, with the parameters of these.
3. Tensor parallelism replaces parameters; checkpointing would hide the modules it looks for.
4. Experts get the ranks and the exchange that they have of their own.
5. Context parallelism meets the blocks as they are, bare, and then attention of local heads.
   In 16 bits a script's own blocks may mix formats, each time that their forward runs.
6. Checkpointing wraps blocks inside of what ZeRO wraps: recomputation must find the parameters
   that ZeRO gathered for backward. What it keeps goes to the host where that is planned.
7. Compiling takes a block with its checkpointing, before ZeRO hooks into it.
8. ZeRO shards what these have left on this rank.
9. Only now is storage taken, for this rank's shards alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from executor.apply.activation_offload import apply_activation_offload
from executor.apply.checkpointing import apply_checkpointing
from executor.apply.compiling import NO_COMPILER, apply_compiler, compiles
from executor.apply.context_parallel import apply_context_parallel
from executor.apply.expert_parallel import apply_expert_parallel
from executor.apply.float8 import Float8, apply_float8
from executor.apply.materialise import materialise, tie
from executor.apply.mixed_formats import apply_mixed_formats
from executor.apply.parameter_marks import mark, marks_of
from executor.apply.pieces import pieces_of
from executor.apply.split import split
from executor.apply.supported import check_shapes
from executor.apply.tensor_parallel import apply_tensor_parallel, shard_embedding_gradient
from executor.apply.virtual_stages import VirtualStage, held_stages, rank_model
from executor.apply.whole import apply_whole
from executor.apply.zero import GradientSync, apply_zero
from executor.mesh import TENSOR, RankMesh
from executor.models.declaration import ModelDeclaration
from executor.models.first_values import FirstValues
from executor.precision import compute_dtype
from executor.updates import Residence
from planner.schema.job import Precision
from planner.schema.strategy import EdgeChoice, Stage, Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """What is applied: the strategy, resolved, and what it needs to know of job and rank.

    A model `is_own` where a script has written and declared it.
    """

    strategy: Strategy
    precision: Precision
    mesh: RankMesh
    device: torch.device
    values: FirstValues
    sharded_logits: bool
    is_own: bool
    compiler: str = NO_COMPILER
    float8: Float8 | None = None


def apply(
    model: nn.Module, *, declaration: ModelDeclaration, application: Application
) -> tuple[VirtualStage, ...]:
    """Turn `model`, whole and on the meta device, into this rank's stages of the plan.

    Raises:
        UnsupportedPlanError: if a degree does not divide what it splits.
        ModelMismatchError: if the model is not the one that was planned.
    """
    strategy = application.strategy
    stages, marks = strategy.stages or (), marks_of(model)
    held: tuple[int, ...] = (0,)
    modules: Sequence[nn.Module] = (model,)
    if not declaration.is_whole:
        check_shapes(declaration.shapes, strategy)
        held = held_stages(strategy, application.mesh.stage)
        modules = split(model, declaration=declaration, stages=stages, held=held)
    made = tuple(
        _made(index, stages, module, _apply_to(module, stages[index], declaration, application))
        for index, module in zip(held, modules, strict=True)
    )
    mark(rank_model(made), marks, declaration=declaration)
    return made


def edge_choices(strategy: Strategy) -> tuple[EdgeChoice, EdgeChoice]:
    """Return how the embedding and the head are kept."""
    return strategy.embedding or EdgeChoice(), strategy.head or EdgeChoice()


def residences_of(
    stages: Iterable[VirtualStage], *, declaration: ModelDeclaration, strategy: Strategy
) -> list[Residence]:
    """Return where the model states of this rank's stages are planned to live."""
    if declaration.is_whole:
        return []
    edges = edge_choices(strategy)
    return [
        Residence(modules=piece.modules, offload=piece.offload)
        for stage in stages
        for piece in pieces_of(stage.module, declaration=declaration, stage=stage.plan, edges=edges)
    ]


def _apply_to_whole(
    model: nn.Module, declaration: ModelDeclaration, application: Application
) -> GradientSync:
    """Apply the plan to a module whose parts are not known."""
    gradient_sync = apply_whole(
        model,
        mesh=application.mesh,
        strategy=application.strategy,
        precision=application.precision,
        device=application.device,
    )
    if any(parameter.is_meta for parameter in model.parameters()):
        materialise(
            model, declaration=declaration, device=application.device, values=application.values
        )
    return gradient_sync


def _apply_to(
    model: nn.Module, stage: Stage, declaration: ModelDeclaration, application: Application
) -> GradientSync:
    """Apply the plan of one stage to its module."""
    if application.float8 is not None:
        apply_float8(
            model,
            declaration=declaration,
            float8=application.float8,
            tensor_degree=application.strategy.tensor_parallel_degree,
        )
    if declaration.is_whole:
        return _apply_to_whole(model, declaration, application)
    strategy, mesh = application.strategy, application.mesh
    if strategy.tensor_parallel_degree > 1:
        apply_tensor_parallel(
            model,
            declaration=declaration,
            mesh=mesh.axis(TENSOR),
            sequence_parallel=strategy.sequence_parallel,
            sharded_logits=application.sharded_logits,
        )
        tie(model, declaration)
        if strategy.sequence_parallel:
            declaration.tell_sequence_parts(model, strategy.tensor_parallel_degree)
    apply_expert_parallel(model, declaration=declaration, mesh=mesh, strategy=strategy)
    if strategy.context_parallel_degree > 1:
        kind = strategy.context_parallel_kind
        apply_context_parallel(model, declaration=declaration, mesh=mesh, kind=kind)
    if application.is_own and application.precision is not Precision.FP32:
        narrow = compute_dtype(application.precision)
        apply_mixed_formats(model, declaration=declaration, narrow=narrow)
    is_compiled = compiles(application.compiler, strategy, declaration)
    apply_checkpointing(model, declaration=declaration, stage=stage, is_compiled=is_compiled)
    apply_activation_offload(model, declaration=declaration, stage=stage)
    apply_compiler(model, declaration=declaration, strategy=strategy, compiler=application.compiler)
    gradient_sync = apply_zero(
        model,
        declaration=declaration,
        mesh=mesh,
        stage=stage,
        edges=edge_choices(strategy),
        precision=application.precision,
    )
    kept = pieces_of(model, declaration=declaration, stage=stage, edges=edge_choices(strategy))
    materialise(
        model,
        declaration=declaration,
        device=application.device,
        values=application.values,
        on_host=[item for piece in kept if piece.parameters_on_host for item in piece.modules],
    )
    shard_embedding_gradient(model, declaration)
    return gradient_sync


def _made(
    index: int, stages: tuple[Stage, ...], module: nn.Module, gradient_sync: GradientSync
) -> VirtualStage:
    return VirtualStage(
        index=index,
        count=len(stages),
        plan=stages[index],
        module=module,
        gradient_sync=gradient_sync,
    )
