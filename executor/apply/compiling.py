"""Compiling: torch.compile of each block, where torch 2.13 can.

A block is compiled inside of what ZeRO wraps and outside of its checkpointing, so that the compiler
sees the recomputation and FSDP's hooks stay out of the graph. Blocks of one kind share their
compiled code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch import nn

from executor.apply.activation_offload import without_offload
from executor.apply.virtual_stages import VirtualStage
from executor.errors import UnsupportedPlanError
from executor.models.declaration import ModelDeclaration
from planner.schema.job import Job
from planner.schema.strategy import V_SCHEDULES, ContextParallelKind, Strategy

NO_COMPILER = "none"
USUAL_COMPILER = "inductor"
# "aot_eager" traces and differentiates as inductor does, and generates no code.
COMPILERS = (NO_COMPILER, USUAL_COMPILER, "aot_eager")


def chosen_compiler(job: Job, asked: str | None) -> str:
    """Return the compiler of blocks: as `asked`, else as the plan's kernels need it.

    Norms and rotary embeddings are priced as single kernels where the job has them so.

    Raises:
        UnsupportedPlanError: if there is no such compiler.
    """
    if asked is None or asked == "":
        return USUAL_COMPILER if job.fused_elementwise else NO_COMPILER
    if asked not in COMPILERS:
        raise UnsupportedPlanError(
            "is not a compiler of blocks",
            field="compiler",
            value=asked,
            remedy=f"use one of {', '.join(COMPILERS)}",
        )
    return asked


def apply_compiler(
    model: nn.Module, *, declaration: ModelDeclaration, strategy: Strategy, compiler: str
) -> None:
    """Compile every block of the stage, where torch can; names of parameters stay."""
    if not compiles(compiler, strategy, declaration):
        return
    for block in model.get_submodule(declaration.blocks).children():
        inner = without_offload(block)
        assert inner is not None  # noqa: S101 - a block is one
        inner.compile(backend=compiler)


def compiles(compiler: str, strategy: Strategy, declaration: ModelDeclaration) -> bool:
    """Return whether blocks are compiled: where that is chosen, and torch can."""
    return compiler != NO_COMPILER and why_not_compiled(strategy, declaration) is None


def compiler_differences(
    stages: Iterable[VirtualStage],
    *,
    declaration: ModelDeclaration,
    strategy: Strategy,
    compiler: str,
) -> Iterator[str]:
    """Yield a sentence for each block that is not compiled although it should be."""
    if compiler == NO_COMPILER:
        return
    reason = why_not_compiled(strategy, declaration)
    if reason is not None:
        yield f"blocks are not compiled by {compiler}: {reason}"
        return
    for stage in stages:
        for name, block in stage.module.get_submodule(declaration.blocks).named_children():
            if getattr(without_offload(block), "_compiled_call_impl", None) is None:
                yield f"block {name} is not compiled, {compiler} is chosen"


def why_not_compiled(strategy: Strategy, declaration: ModelDeclaration) -> str | None:
    """Return why torch 2.13 cannot compile the blocks of a plan, `None` where it can.

    What is refused was tried on two busy cores: tensor parallelism fails to trace; a ring of ranks
    fails where its code resumes; experts on ranks of their own were compiled anew for each count of
    tokens until torch gave up; DualPipeV and experts on data ranks gave no answer within minutes.
    """
    if declaration.is_whole:
        return "the model declares no blocks"
    if strategy.tensor_parallel_degree > 1:
        return "tracing fails on the sharded tensors of tensor parallelism"
    if strategy.pipeline_parallel_degree > 1 and strategy.pipeline_schedule in V_SCHEDULES:
        return f"{strategy.pipeline_schedule.value} divides backward, which compiled code does not"
    ring = strategy.context_parallel_kind is ContextParallelKind.RING
    if strategy.context_parallel_degree > 1 and ring:
        return "attention around a ring takes the place of torch's while forward runs"
    if declaration.shapes.expert_count > 0:
        return "how many tokens an expert gets is known only while forward runs"
    return None
