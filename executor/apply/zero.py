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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

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
from executor.apply.host_gradients import HostGradients
from executor.apply.parameter_groups import parameter_groups
from executor.apply.pieces import Piece, joined, parameters_beside, parameters_of, pieces_of
from executor.apply.replicate import Replica, Replicas, Scalars, scalars_of
from executor.apply.usage import Reduced, ShardedGradients, Usage
from executor.errors import UnsupportedPlanError
from executor.mesh import ExpertMesh, RankMesh
from executor.models.declaration import ModelDeclaration, part
from executor.precision import compute_dtype, sum_dtype
from planner.schema.job import Precision
from planner.schema.strategy import EdgeChoice, Stage

_BUCKET_BYTES = 25 * 2**20  # of gradients reduced whole, as DistributedDataParallel has it


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedPart:
    """A module whose model states are kept as one ZeRO stage says."""

    module: FSDPModule
    zero_stage: int
    gradients: tuple[ShardedGradients, ...]
    on_host: HostGradients

    @staticmethod
    def of(module: nn.Module, zero_stage: int) -> ShardedPart:
        """Return the part of a module that FSDP keeps."""
        assert isinstance(module, FSDPModule)  # noqa: S101 - the caller has made it one
        groups = parameter_groups(module)
        for group in groups:
            _check_formats(group.fsdp_params)
        return ShardedPart(
            module=module,
            zero_stage=zero_stage,
            gradients=tuple(ShardedGradients(group) for group in groups),
            on_host=HostGradients(groups),
        )

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
            item.on_host.before_backward(is_last=is_last)
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
        for item in self.sharded:
            item.on_host.after_backward()
        self.replicas.after_backward()

    def finish(self) -> None:
        """Wait for what the last backward has left under way; a collective call."""
        for usage in self.usages:
            usage.ask()
        self.replicas.finish()
        for usage in self.usages:
            usage.settle()
        for item in self.sharded:
            item.begin()


def _check_formats(kept: Sequence[Any]) -> None:
    """Return if all that FSDP keeps together and is trained has one format, as FSDP needs."""
    trained = [item.sharded_param for item in kept if item.sharded_param.requires_grad]
    formats = {str(item.dtype).removeprefix("torch.") for item in trained}
    if len(formats) > 1:
        raise UnsupportedPlanError(
            "shards together parameters of one format alone",
            field="build_model",
            value=", ".join(sorted(formats)),
            remedy="give parameters one format, and change that of what is computed in forward, or "
            "declare blocks by declaration=meshwright.Declaration(blocks=...), each of one format",
        )


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
    beside = parameters_beside(model, pieces)
    experts = {} if mesh.experts is None else _expert_pieces(pieces, declaration)
    apart = [module for piece in experts.values() for module in piece.modules]
    made: dict[Piece, Replica | ShardedPart] = {}
    replicated: tuple[nn.Module, ...] = ()
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
            replicated += piece.modules
            if kept.trained() and (degree > 1 or data.size() > 1):
                made[piece] = kept
        elif parameters_of(piece) & beside or _holds_tied_pair(piece, model, declaration):
            root = piece if root is None else joined(root, piece)
        else:
            ignored.update(scalars_of(piece.modules))
            made[piece] = _keep(piece, mesh=mesh, policy=policy, ignored=ignored)
    is_sharded = any(isinstance(item, ShardedPart) for item in made.values())
    scalars = Scalars.of(model, mesh, apart=replicated)
    ignored.update(scalars_of((model,)))
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
    backward = [item for item in reversed(chain) if item is not None]
    return _synced(made, backward, mesh, scalars)


def _synced(
    made: Mapping[Piece, Replica | ShardedPart],
    backward: Sequence[Piece],
    mesh: RankMesh,
    scalars: Sequence[Replica],
) -> GradientSync:
    """Return when all that was made of pieces synchronises; `backward` is the order of most."""
    buckets = list(buckets_of(made, backward))
    alike: dict[bool, list[Reduced]] = {}
    for piece, item in made.items():
        if isinstance(item, ShardedPart):
            alike.setdefault(piece.are_experts, []).extend(item.gradients)
    for are_experts, bucket in (*buckets, *((False, item) for item in scalars)):
        alike.setdefault(are_experts, []).append(bucket)
    return GradientSync(
        sharded=tuple(item for item in made.values() if isinstance(item, ShardedPart)),
        replicas=Replicas([*(bucket for _, bucket in buckets), *scalars]),
        usages=tuple(
            Usage(mesh.experts.data if are_experts and mesh.experts else mesh.data, reduced)
            for are_experts, reduced in alike.items()
        ),
    )


def buckets_of(
    made: Mapping[Piece, Replica | ShardedPart], backward: Sequence[Piece]
) -> Iterator[tuple[bool, Replica]]:
    """Yield replicas of experts and of others, neighbours together up to the bytes of a bucket."""
    last: tuple[Piece, Replica] | None = None
    for piece in backward:
        item = made[piece]
        if not isinstance(item, Replica):
            continue
        if last is None:
            last = (piece, item)
            continue
        if last[0].are_experts == piece.are_experts and last[1].goes_with(item, _BUCKET_BYTES):
            last = (piece, last[1].with_more(piece.modules))
            continue
        yield last[0].are_experts, last[1]
        last = (piece, item)
    if last is not None:
        yield last[0].are_experts, last[1]


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


def _holds_tied_pair(piece: Piece, model: nn.Module, declaration: ModelDeclaration) -> bool:
    ends = {part(model, path) for path in (declaration.embedding, declaration.head)}
    return declaration.tied_embeddings and ends <= set(piece.modules)


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
