"""Expert parallelism: routed experts lie on different ranks, and tokens travel to them and back.

With t tensor-parallel ranks, e ranks with different experts and a (t or 1) with parts of one:

| a     | tokens between blocks | what happens around the experts                                  |
|-------|-----------------------|------------------------------------------------------------------|
| t     | whole on each         | all_to_all over e ranks, then an all_reduce of partial outputs   |
| t     | split, e = 1          | all_gather before, reduce_scatter of partial outputs after       |
| t     | split, e > 1          | all_to_all over e x a ranks: each row to all parts of its expert |
| 1 < t | whole on each         | each rank takes its tokens, all_to_all over e, all_gather after  |
| 1 < t | split                 | all_to_all over e ranks                                          |

Sizes of the all_to_alls are those of the routing: no token is dropped, none padded.

Source: Lepikhin et al. 2020, arXiv:2006.16668 (dispatch and combine); Liu et al. 2025,
arXiv:2504.14960 (experts on a mesh of their own).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import distributed, nn
from torch.distributed import ProcessGroup
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Placement,
    Replicate,
    Shard,
    distribute_tensor,
)

from executor.local_tensor import local_tensor
from executor.mesh import EXPERT, EXPERT_TENSOR, TENSOR, RankMesh
from executor.models.declaration import ModelDeclaration, part
from executor.models.experts import (
    EXPERT_DIMENSION,
    WIDTH_DIMENSION,
    Dispatch,
    LocalDispatch,
    Routed,
    RoutedExperts,
    Transform,
)
from planner.schema.strategy import Strategy

_TOKENS = Shard(0)


def apply_expert_parallel(
    model: nn.Module, *, declaration: ModelDeclaration, mesh: RankMesh, strategy: Strategy
) -> None:
    """Give every mixture of the stage this rank's experts, and the way to the others."""
    for _, experts in experts_of(model, declaration):
        count = experts.gate_up_proj.shape[EXPERT_DIMENSION]
        _place(experts, mesh)
        experts.dispatch = _dispatch(mesh, strategy, expert_count=count)


def experts_of(
    model: nn.Module, declaration: ModelDeclaration
) -> list[tuple[nn.Module, RoutedExperts]]:
    """Return the blocks of `model` that route tokens, each with its experts."""
    path = declaration.block.experts
    if path is None:
        return []
    blocks = model.get_submodule(declaration.blocks).children()
    found = [(block, part(block, path)) for block in blocks]
    return [(block, experts) for block, experts in found if isinstance(experts, RoutedExperts)]


def _place(experts: RoutedExperts, mesh: RankMesh) -> None:
    """Let each parameter hold this rank's experts, and of them this rank's part."""
    if mesh.experts is not None:
        home = mesh.experts.world[EXPERT, EXPERT_TENSOR]
        placements: tuple[Placement, ...] = (Shard(EXPERT_DIMENSION), Shard(WIDTH_DIMENSION))
    elif mesh.degrees[TENSOR] > 1:
        home, placements = mesh.axis(TENSOR), (Shard(WIDTH_DIMENSION),)
    else:
        return
    for name, parameter in list(experts.named_parameters(recurse=False)):
        placed = distribute_tensor(parameter.detach(), home, placements)
        setattr(experts, name, nn.Parameter(placed, requires_grad=parameter.requires_grad))


def _dispatch(mesh: RankMesh, strategy: Strategy, *, expert_count: int) -> Dispatch:
    tensor, expert = strategy.tensor_parallel_degree, strategy.expert_parallel_degree
    copies = strategy.expert_tensor_parallel_degree or tensor
    splits_tokens = tensor > 1 and (copies < tensor or (strategy.sequence_parallel and expert > 1))
    inner: Dispatch = LocalDispatch(expert_count)
    if mesh.experts is not None and (expert > 1 or (splits_tokens and copies > 1)):
        exchange = mesh.experts.exchange if splits_tokens else mesh.experts.axis(EXPERT)
        inner = Exchange(
            group=exchange.get_group(),
            expert_count=expert_count,
            copies=copies if splits_tokens else 1,
        )
    if tensor == 1:
        return inner
    return TensorRegion(
        inner=inner,
        mesh=mesh.axis(TENSOR),
        outside=_TOKENS if strategy.sequence_parallel else Replicate(),
        inside=_TOKENS if splits_tokens else Replicate(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRegion:
    """Which tokens the tensor-parallel ranks have outside of the experts, and which inside.

    Where each has all tokens inside, it has a part of every expert, and outputs are partial sums.
    """

    inner: Dispatch
    mesh: DeviceMesh
    outside: Placement
    inside: Placement

    def __call__(self, routed: Routed, transform: Transform) -> torch.Tensor:
        """Return what the experts made of the tokens outside, [T, D]."""
        inside = Routed(
            tokens=self._enter(routed.tokens),
            chosen=self._enter(routed.chosen),
            weights=self._enter(routed.weights),
        )
        output = self.inner(inside, transform)
        summand: Placement = Partial() if self.inside.is_replicate() else self.inside
        # Ranks may have one token more than others, so the whole shape is said.
        count = routed.tokens.shape[0]
        whole = count if self.outside.is_replicate() else count * self.mesh.size()
        placed = DTensor.from_local(
            output,
            self.mesh,
            (summand,),
            run_check=False,
            shape=torch.Size((whole, output.shape[1])),
            stride=(output.shape[1], 1),
        )
        return placed.redistribute(placements=(self.outside,)).to_local()

    def _enter(self, outside: torch.Tensor) -> torch.Tensor:
        """Return a tensor as it is inside; gradients of whole ones are partial sums there."""
        placed = DTensor.from_local(outside, self.mesh, (self.outside,), run_check=False)
        gradient = Partial() if self.inside.is_replicate() else self.inside
        moved = placed.redistribute(placements=(self.inside,))
        return moved.to_local(grad_placements=(gradient,))


class Exchange:
    """Dispatch and combine by all_to_all: each row to the `copies` ranks that share its expert.

    `group` has the ranks of one expert's parts side by side.
    """

    def __init__(self, *, group: ProcessGroup, expert_count: int, copies: int) -> None:
        self._group = group
        self._expert_count = expert_count
        self._copies = copies
        self._holders = group.size() // copies

    def __call__(self, routed: Routed, transform: Transform) -> torch.Tensor:
        """Return what the experts made of the tokens, [T, D]."""
        rows = routed.rows(self._expert_count)
        sent = rows.counts.view(self._holders, -1).repeat_interleave(self._copies, dim=0)
        received = torch.empty_like(sent)
        distributed.all_to_all_single(received, sent, group=self._group)
        # The one time that a GPU's numbers come to the host: an exchange asks for its sizes.
        outgoing, incoming = torch.stack([sent.sum(dim=1), received.sum(dim=1)]).tolist()
        places = self._places(outgoing[:: self._copies], rows.counts.device)
        arrived = self._trade(rows.states[places], incoming, outgoing)
        returned = self._trade(_by_expert(arrived, received, transform), outgoing, incoming)
        if self._copies > 1:  # each part of an expert returns its summand of the same row
            returned = torch.zeros_like(rows.states).index_add(0, places, returned)
        return routed.combined(returned, rows.order)

    def _places(self, by_holder: list[int], device: torch.device) -> torch.Tensor:
        """Return which rows are sent, in the order of ranks."""
        rows = torch.arange(sum(by_holder), device=device)
        return torch.cat([piece.repeat(self._copies) for piece in torch.split(rows, by_holder)])

    def _trade(
        self, states: torch.Tensor, incoming: list[int], outgoing: list[int]
    ) -> torch.Tensor:
        traded: torch.Tensor = all_to_all_single_autograd(
            states.contiguous(), incoming, outgoing, self._group
        )
        return traded


def _by_expert(states: torch.Tensor, counts: torch.Tensor, transform: Transform) -> torch.Tensor:
    """Return rows as transformed, in their order: by source, then expert; `counts` are of both."""
    experts = torch.arange(counts.shape[1], device=counts.device).repeat(counts.shape[0])
    of_rows = experts.repeat_interleave(counts.flatten(), output_size=states.shape[0])
    order = of_rows.argsort(stable=True)
    transformed = transform(states[order], counts.sum(dim=0))
    # Indexing by the inverse keeps no rows for the backward pass, where index_copy keeps them all.
    return transformed[order.argsort()]


def expert_shard(sharding: DeviceMesh, parameter: nn.Parameter) -> Shard:
    """Return the dimension that ZeRO shards of an expert parameter: experts, else hidden width.

    `sharding` has the ranks as its last axis. Hidden width is what no other axis divides.
    """
    degree = sharding.size(sharding.ndim - 1)
    here = local_tensor(parameter).shape[EXPERT_DIMENSION]
    hidden = 3 if parameter.ndim == 4 else 1
    return Shard(EXPERT_DIMENSION if here % degree == 0 else hidden)
