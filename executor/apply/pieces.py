"""Pieces: what of a stage is kept together, as one ZeRO stage and one offload say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce

from torch import nn

from executor.apply.split import stage_blocks
from executor.errors import UnsupportedPlanError
from executor.models.declaration import ModelDeclaration, part
from planner.schema.strategy import EdgeChoice, Offload, Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Modules whose model states are kept together: a block, or what stands at an end.

    What `is_always_sharded` is so even over a single rank: FSDP alone moves parameters to the host
    and back, and has them below a root of its own kind.
    """

    modules: tuple[nn.Module, ...]
    zero_stage: int
    offload: frozenset[Offload] = frozenset()
    is_always_sharded: bool = False
    are_experts: bool = False

    @property
    def parameters_on_host(self) -> bool:
        """Return whether parameters lie on the host between their uses."""
        return Offload.PARAMETERS in self.offload


def pieces_of(
    model: nn.Module,
    *,
    declaration: ModelDeclaration,
    stage: Stage,
    edges: tuple[EdgeChoice, EdgeChoice],
) -> list[Piece]:
    """Return what of a stage is kept together, and how, in the order of the chain.

    Tied edges are one piece, whose gradients are complete with the embedding's.
    """
    pieces: list[Piece] = []
    for group in stage.layers:
        for index in stage_blocks(Stage(stage=0, layers=(group,))):
            block = model.get_submodule(declaration.block_path(index))
            pieces.append(
                Piece(
                    modules=(block,), zero_stage=group.zero_stage, offload=frozenset(group.offload)
                )
            )
    embedding = part(model, declaration.embedding)
    head = part(model, declaration.head)
    norm = part(model, declaration.final_norm)
    beside = [part(model, path) for path in declaration.beside_embedding]
    first = tuple(module for module in (embedding, *beside) if module is not None)
    if declaration.tied_embeddings and embedding and norm and head:
        return _joined_by_parameters([_edge((*first, norm, head), edges[0]), *pieces])
    if embedding is not None:
        pieces.insert(0, _edge(first, edges[0]))
    last = tuple(module for module in (norm, head) if module is not None)
    if last:
        pieces.append(_edge(last, head_choice(declaration, edges)))
    return _joined_by_parameters(pieces)


def _joined_by_parameters(pieces: Iterable[Piece]) -> list[Piece]:
    """Return pieces of which no two hold the same parameter: those that do are one.

    A shared parameter's gradient is complete, and to be reduced, when all that use it have run.
    """
    apart: list[tuple[Piece, set[nn.Parameter]]] = []
    for piece in pieces:
        own = parameters_of(piece)
        sharing = [item for item in apart if own & item[1]]
        place = apart.index(sharing[0]) if sharing else len(apart)
        whole = reduce(joined, (*(other for other, _ in sharing), piece))
        apart = [item for item in apart if item not in sharing]
        apart.insert(place, (whole, own.union(*(held for _, held in sharing))))
    return [piece for piece, _ in apart]


def joined(one: Piece, other: Piece) -> Piece:
    """Return both as one piece.

    Raises:
        UnsupportedPlanError: if the plan keeps them otherwise.
    """
    for name in ("zero_stage", "offload"):
        values = [getattr(piece, name) for piece in (one, other)]
        if values[0] != values[1]:
            raise UnsupportedPlanError(
                "differs between parts of the model that share a parameter",
                field=f"strategy {name}",
                value=" and ".join(str(_said(value)) for value in values),
                remedy=f"plan with one {name} for all of these parts, or share no parameter",
            )
    return replace(one, modules=tuple(dict.fromkeys((*one.modules, *other.modules))))


def _said(value: int | frozenset[Offload]) -> int | list[str]:
    return value if isinstance(value, int) else sorted(item.value for item in value)


def parameters_of(piece: Piece) -> set[nn.Parameter]:
    """Return the parameters of its modules."""
    return {item for module in piece.modules for item in module.parameters()}


def _edge(modules: tuple[nn.Module, ...], choice: EdgeChoice) -> Piece:
    return Piece(modules=modules, zero_stage=choice.zero_stage, offload=frozenset(choice.offload))


def parameters_beside(model: nn.Module, pieces: Iterable[Piece]) -> set[nn.Parameter]:
    """Return the parameters of what is in none of the pieces."""
    inside = {item for piece in pieces for module in piece.modules for item in module.modules()}
    return {
        parameter
        for module in model.modules()
        if module not in inside
        for parameter in module.parameters(recurse=False)
    }


def head_choice(declaration: ModelDeclaration, edges: tuple[EdgeChoice, EdgeChoice]) -> EdgeChoice:
    """Return how the head is kept: as the embedding where both share one weight."""
    return edges[0] if declaration.tied_embeddings else edges[1]
