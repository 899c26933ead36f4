"""ZeRO and data parallelism through FSDP2: what each stage shards, and when it synchronises.

| stage | parameters after forward | gradients reduced         | states sharded |
|-------|--------------------------|---------------------------|----------------|
| 0     | whole                    | all-reduce, once a step   | nothing        |
| 1     | whole until step's end   | reduce-scatter, once      | optimizer      |
| 2     | whole until step's end   | reduce-scatter, each time | + gradients    |
| 3     | sharded                  | reduce-scatter, each time | + parameters   |

FSDP averages over the ranks that see different tokens, data-parallel and context-parallel, so that
the mean loss of each rank's equal share has the gradient of the global batch's mean.

Parameters that are offloaded lie on the host between steps and between forwards: FSDP brings a
shard to the device for each gather, and takes each reduced gradient to the host.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from torch import nn
from torch.distributed._composable.replicate_with_fsdp import replicate
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)

from executor.apply.expert_parallel import expert_shard
from executor.apply.hooks_outside import keep_hooks_outside
from executor.apply.replicate import Replica, Replicas
from executor.apply.split import stage_blocks
from executor.apply.usage import Reduced, ShardedGradients, Usage
from executor.mesh import ExpertMesh, RankMesh
from executor.models.declaration import ModelDeclaration, part
from executor.precision import compute_dtype, sum_dtype
from planner.schema.job import Precision
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedPart:
    """A module whose model states are kept as one ZeRO stage says."""

    module: FSDPModule
    zero_stage: int
    gradients: tuple[ShardedGradients, ...]

    @staticmethod
    def of(module: nn.Module, zero_stage: int) -> ShardedPart:
        """Return the part of a module that FSDP keeps."""
        assert isinstance(module, FSDPModule)  # noqa: S101 - the caller has made it one
        groups = module._get_fsdp_state()._fsdp_param_groups  # noqa: SLF001 - torch shows none
        gradients = tuple(ShardedGradients(group) for group in groups)
        return ShardedPart(module=module, zero_stage=zero_stage, gradients=gradients)

    def begin(self) -> None:
        """Forget which gradients the last step had."""
        for item in self.gradients:
            item.begin()


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientSync:
    """When the parts of a stage reduce gradients and give up whole parameters."""

    sharded: tuple[ShardedPart, ...] = ()
    replicas: Replicas = field(default_factory=Replicas)
    usages: tuple[Usage, ...] = ()

    def before_backward(self, *, is_last: bool) -> None:
        """Set every part's flags for the backward of one micro-batch.

        Whole parameters must be given up after the last backward at the latest: the optimizer
        updates the shards, and what stayed whole would be stale.
        """
        for item in self.sharded:
            item.module.set_requires_gradient_sync(is_last or item.zero_stage >= 2, recurse=False)
            item.module.set_requires_all_reduce(is_last, recurse=False)
            item.module.set_reshard_after_backward(is_last or item.zero_stage == 3, recurse=False)
        self.replicas.before_backward(is_last=is_last)

    @property
    def frees_parameters(self) -> bool:
        """Return whether whole parameters are given up between forward and backward."""
        return any(item.zero_stage == 3 for item in self.sharded)

    def before_input_gradients(self) -> None:
        """Set every part's flags for the first part of a divided backward: it reduces nothing."""
        for item in self.sharded:
            item.module.set_requires_gradient_sync(False, recurse=False)
            item.module.set_reshard_after_backward(False, recurse=False)

    def after_backward(self) -> None:
        """Reduce what is left after the backward of a micro-batch, if it was the step's last."""
        self.replicas.after_backward()

    def finish(self) -> None:
        """Wait for what the last backward has left under way; a collective call."""
        self.replicas.finish()
        for usage in self.usages:
            usage.agree()
        for item in self.sharded:
            item.begin()


def needs_data_parallel(mesh: RankMesh, precision: Precision) -> bool:
    """Return whether anything is to be done: states to share, or a copy in another format."""
    differ = mesh.gradient_degree > 1 or mesh.experts is not None
    return differ or precision is not Precision.FP32


def apply_zero(
    model: nn.Module,
    *,
    declaration: ModelDeclaration,
    mesh: RankMesh,
    stage: Stage,
    edges: tuple[EdgeChoice, EdgeChoice],
    precision: Precision,
) -> GradientSync:
    """Shard or replicate each block and edge of the stage as its group's ZeRO stage says."""
    pieces = pieces_of(model, declaration=declaration, stage=stage, edges=edges)
    if not needs_data_parallel(mesh, precision) and not any(p.parameters_on_host for p in pieces):
        return GradientSync()
    policy = _mixed_precision(precision)
    ignored: set[nn.Parameter] = set()
    root: Piece | None = None
    experts = {} if mesh.experts is None else _expert_pieces(pieces, declaration)
    apart = [module for piece in experts.values() for module in piece.modules]
    made: dict[Piece, Replica | ShardedPart] = {}
    for piece in (*experts.values(), *pieces):
        if precision is Precision.FP32 and _placement(piece, mesh) is None:
            data, degree = _home(piece, mesh).data, mesh.gradient_degree
            kept = Replica(
                piece.modules,
                group=data.get_group(),
                degree=degree,
                apart=() if piece.are_experts else apart,
            )
            ignored.update(kept.parameters())
            if kept.trained() and (degree > 1 or data.size() > 1):
                made[piece] = kept
        elif _holds_tied_pair(model, declaration) and len(piece.modules) > 1:
            root = piece
        else:
            made[piece] = _keep(piece, mesh=mesh, policy=policy, ignored=ignored)
    is_sharded = any(isinstance(item, ShardedPart) for item in made.values())
    if is_sharded or root is not None or ignored != set(model.parameters()):
        # The root orders the parts' collectives, and holds itself what shares one weight, or what
        # a declaration leaves outside of all parts.
        root = Piece(
            modules=(model,),
            zero_stage=int(is_sharded) if root is None else root.zero_stage,
            offload=frozenset() if root is None else root.offload,
            is_always_sharded=any(piece.parameters_on_host for piece in pieces),
        )
        made[root] = _keep(root, mesh=mesh, policy=policy, ignored=ignored)
    chain = [item for piece in pieces for item in (piece, experts.get(piece)) if item in made]
    return _synced(made, [item for item in reversed(chain) if item is not None], mesh)


def _synced(
    made: Mapping[Piece, Replica | ShardedPart], backward: Sequence[Piece], mesh: RankMesh
) -> GradientSync:
    """Return when all that was made of pieces synchronises; `backward` is the order of most."""
    alike: dict[bool, list[Reduced]] = {}
    for piece, item in made.items():
        found = item.gradients if isinstance(item, ShardedPart) else (item,)
        alike.setdefault(piece.are_experts, []).extend(found)
    replicas = [made[piece] for piece in backward]
    return GradientSync(
        sharded=tuple(item for item in made.values() if isinstance(item, ShardedPart)),
        replicas=Replicas(item for item in replicas if isinstance(item, Replica)),
        usages=tuple(
            Usage(mesh.experts.data if are_experts and mesh.experts else mesh.data, reduced)
            for are_experts, reduced in alike.items()
        ),
    )


def head_choice(declaration: ModelDeclaration, edges: tuple[EdgeChoice, EdgeChoice]) -> EdgeChoice:
    """Return how the head is kept: as the embedding where both share one weight."""
    return edges[0] if declaration.tied_embeddings else edges[1]


def sharding_mesh(mesh: RankMesh | ExpertMesh, zero_stage: int) -> DeviceMesh | None:
    """Return the mesh over which `zero_stage` shards, `None` where it only replicates."""
    if zero_stage == 0 or mesh.sharding.size() == 1:
        return None
    return mesh.hybrid if mesh.hybrid.size(0) > 1 else mesh.sharding


def _home(piece: Piece, mesh: RankMesh) -> RankMesh | ExpertMesh:
    """Return the mesh that a piece's parameters lie on."""
    return mesh.experts if piece.are_experts and mesh.experts is not None else mesh


def _expert_pieces(pieces: Iterable[Piece], declaration: ModelDeclaration) -> dict[Piece, Piece]:
    """Return the routed experts of each block as a piece of their own, kept as the block is."""
    path = declaration.block.experts
    made: dict[Piece, Piece] = {}
    for piece in pieces if path is not None else ():
        found = [part(module, path or "") for module in piece.modules]
        experts = tuple(module for module in found if module is not None)
        if experts:
            made[piece] = replace(piece, modules=experts, are_experts=True)
    return made


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
        return [_edge((*first, norm, head), edges[0]), *pieces]
    if embedding is not None:
        pieces.insert(0, _edge(first, edges[0]))
    last = tuple(module for module in (norm, head) if module is not None)
    if last:
        pieces.append(_edge(last, head_choice(declaration, edges)))
    return pieces


def _edge(modules: tuple[nn.Module, ...], choice: EdgeChoice) -> Piece:
    return Piece(modules=modules, zero_stage=choice.zero_stage, offload=frozenset(choice.offload))


def _holds_tied_pair(model: nn.Module, declaration: ModelDeclaration) -> bool:
    return (
        declaration.tied_embeddings
        and part(model, declaration.embedding) is not None
        and part(model, declaration.head) is not None
    )


def _placement(piece: Piece, mesh: RankMesh) -> DeviceMesh | None:
    """Return the mesh over which a piece is sharded, `None` where it is only replicated."""
    home = _home(piece, mesh)
    sharding = sharding_mesh(home, piece.zero_stage)
    if sharding is None and (piece.parameters_on_host or piece.is_always_sharded):
        return home.hybrid if home.hybrid.size(0) > 1 else home.sharding
    return sharding


def _keep(
    piece: Piece,
    *,
    mesh: RankMesh,
    policy: MixedPrecisionPolicy,
    ignored: set[nn.Parameter] | None = None,
) -> ShardedPart:
    target = list(piece.modules) if len(piece.modules) > 1 else piece.modules[0]
    placement = _placement(piece, mesh)
    if placement is None:
        home = _home(piece, mesh)
        replicate(target, mesh=home.data, mp_policy=policy, ignored_params=ignored)
        _average_over_tokens(piece, mesh)
        return ShardedPart.of(piece.modules[0], piece.zero_stage)
    pinned = mesh.world.device_type == "cuda"
    fully_shard(
        target,
        mesh=placement,
        reshard_after_forward=piece.zero_stage == 3,
        mp_policy=policy,
        offload_policy=CPUOffloadPolicy(pin_memory=pinned)
        if piece.parameters_on_host
        else OffloadPolicy(),
        ignored_params=ignored,
        shard_placement_fn=partial(expert_shard, placement) if piece.are_experts else None,
    )
    _average_over_tokens(piece, mesh)
    return ShardedPart.of(piece.modules[0], piece.zero_stage)


def _average_over_tokens(piece: Piece, mesh: RankMesh) -> None:
    """Let experts' gradients be divided by the ranks that see different tokens.

    FSDP would divide by the ranks that hold the same experts, which have met the tokens of more.
    """
    if piece.are_experts:
        module = _fsdp(piece.modules[0])
        module.set_gradient_divide_factor(float(mesh.gradient_degree))
        # Gloo has no operator that divides and sums at once. Where one rank has all of a shard
        # group there is no such sum, and torch 2.13 would divide twice if it were told to avoid it.
        placement = _placement(piece, mesh)
        shards = 1 if placement is None else placement.size(-1)
        module.set_force_sum_reduction_for_comms(shards > 1)
        keep_hooks_outside(piece.modules[0])


def _fsdp(module: nn.Module) -> FSDPModule:
    assert isinstance(module, FSDPModule)  # noqa: S101 - `_keep` has made it one
    return module


def _mixed_precision(precision: Precision) -> MixedPrecisionPolicy:
    if precision is Precision.FP32:
        return MixedPrecisionPolicy()
    return MixedPrecisionPolicy(param_dtype=compute_dtype(precision), reduce_dtype=sum_dtype())
