"""Own: a script's own module, and the short declaration that lets a plan's techniques at it.

    meshwright.Declaration(
        embedding="embed", blocks="layers", final_norm="norm", head="head",   # for pipelines
        column=("attention.query", "mlp.up"), row=("attention.out", "mlp.down"),  # for tensor
        norms=("norm1", "norm2"), head_count=8,                               # parallelism
    )

`blocks` alone is enough for ZeRO by layer group, and for activation checkpointing. A pipeline needs
the four parts, and a forward that does nothing between them but hand one tensor on, beside inputs
of its own as they are: this is checked by following a forward on the meta device. The head may hold
the embedding too, as prediction of further tokens needs it: then both ends have it. Tensor
parallelism needs the linears by name, context parallelism a `tell_sequence_part`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial as partly

import torch
from torch import nn

from executor.errors import ModelMismatchError, UnsupportedPlanError
from executor.models.adapters import unadapted, with_adapter_values
from executor.models.declaration import (
    BlockDeclaration,
    InitialValue,
    ModelDeclaration,
    Shapes,
    part,
)
from executor.models.feature_local import is_feature_local
from executor.models.file_names import FileNames
from executor.models.first_values import DrawnValues, FirstValues
from executor.models.forward_inputs import ForwardInputs, with_first
from executor.models.huggingface_inputs import with_labels
from executor.models.initial_state import InitialState
from executor.models.positions import SequencePart
from executor.models.quantized_linear import with_plain_linears
from executor.models.route import Route, follow
from executor.models.token_local import Tell, is_token_local
from planner.schema.strategy import ContextParallelKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What a module says of itself: paths of its parts, and of the linears inside a block.

    `column` linears split their outputs over tensor-parallel ranks, `row` linears their inputs;
    forward treats heads or features apart between them, which is checked by trying it.
    `norms` treat each token alone. `gathered` modules need the whole sequence: path to the name of
    the argument, `None` where it is the only one; left out, they are the parents of `column`. All
    else treats each token alone, where ranks split sequences: this is checked by trying a forward.
    `head_count` and `key_value_head_count` must be divided by the tensor-parallel degree.

    `tell_sequence_part(module, part)` is called where ranks share sequences, and says that nothing
    but torch's `scaled_dot_product_attention`, in every block, looks at more than one token, which
    is checked as above where there is a `head`. A module that knows positions takes those of its
    tokens from `part.positions(length, device)`.

    `inputs` are names of forward's arguments with a default, such as masks, that batches have and a
    pipeline's parts are to get; those without a default are known.

    `initial_value(name, shape, generator)` returns a parameter by its name, or a tile of one, whose
    elements are all drawn alike: then each rank draws what it holds. Without it each runs the code
    of the whole module once more, so that it begins as it would alone.
    """

    blocks: str
    embedding: str | None = None
    final_norm: str | None = None
    head: str | None = None
    column: tuple[str, ...] = ()
    row: tuple[str, ...] = ()
    norms: tuple[str, ...] = ()
    gathered: Mapping[str, str | None] | None = field(default=None)
    head_count: int | None = None
    key_value_head_count: int | None = None
    tell_sequence_part: Callable[[nn.Module, SequencePart], None] | None = None
    inputs: tuple[str, ...] = ()
    initial_value: InitialValue | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnModel:
    """A script's module as it was built on the meta device, and how it declares and begins."""

    module: nn.Module
    declaration: Declaration
    initial_state: InitialState
    seed: int

    def first_values(self) -> FirstValues:
        """Return what its parameters begin with."""
        begins = self.declaration.initial_value
        if begins is None:
            return self.initial_state
        return DrawnValues(with_adapter_values(begins, self.module), seed=self.seed)

    def declared(self) -> ModelDeclaration:
        """Return what techniques read of it.

        Raises:
            ModelMismatchError: if a path leads nowhere, or the blocks are no list of blocks.
        """
        own = self.declaration
        self._check_paths()
        return ModelDeclaration(
            embedding=own.embedding or "",
            blocks=own.blocks,
            final_norm=own.final_norm or "",
            head=own.head or "",
            tied_embeddings=self._second_weight() is not None,
            second_weight=self._second_weight(),
            block=BlockDeclaration(
                norms=own.norms, gathered=self._gathered(), column=own.column, row=own.row
            ),
            shapes=self._shapes(),
            block_count=len(self._blocks()),
            file_names=FileNames.of(self.module),
            restore_buffers=self.initial_state.restore_buffers,
            tell_sequence_part=own.tell_sequence_part,
            inputs=with_labels(ForwardInputs.of_module(self.module), self.module),
        )

    def check_context_parallel(self, degree: int, kind: ContextParallelKind) -> None:
        """Return if ranks can share sequences by what is declared.

        Raises:
            UnsupportedPlanError: naming what of the declaration is missing.
        """
        names = ["tell_sequence_part"]
        if kind is ContextParallelKind.ALL_TO_ALL:
            names.append("head_count")
        if degree == 1:
            return
        for name in names:
            if not getattr(self.declaration, name):
                raise _undeclared("context_parallel_degree", degree, name)
        if not self._is_token_local((), tell=self.declaration.tell_sequence_part):
            raise UnsupportedPlanError(
                "gives each rank its own tokens, and forward looks at others outside of torch's "
                "scaled_dot_product_attention",
                field="strategy.context_parallel_degree",
                value=degree,
                remedy="have attention alone look at other tokens, and places come from "
                "part.positions(), or plan with context_parallel_degree limited to 1",
            )

    def check_tensor_parallel(self, degree: int, *, sequence_parallel: bool) -> None:
        """Return if tensor parallelism can be applied from what is declared.

        Raises:
            UnsupportedPlanError: naming what of the declaration is missing.
        """
        if degree == 1:
            return
        own = self.declaration
        for name in ("column", "row", "head_count", "embedding", "head", "final_norm"):
            if not getattr(own, name):
                raise _undeclared("tensor_parallel_degree", degree, name)
        for name, kind in (("embedding", nn.Embedding), ("head", nn.Linear)):
            found = part(self.module, str(getattr(own, name)))
            if not isinstance(found, kind):
                raise UnsupportedPlanError(
                    f"splits the {name}, which is a {type(found).__qualname__} and no "
                    f"{kind.__name__}",
                    field="strategy.tensor_parallel_degree",
                    value=degree,
                    remedy=f"make {getattr(own, name)} a torch.nn.{kind.__name__}, or plan with "
                    "tensor_parallel_degree limited to 1",
                )
        self._check_unshared("tensor_parallel_degree", degree)
        if sequence_parallel:
            self._check_covered()
            self._check_token_local()
        self._check_feature_local(degree)

    def pipelined(self, example: torch.Tensor) -> OwnChain:
        """Return the module as a chain that can lose parts; `example` is an input on meta.

        Other inputs of forward are followed as tensors of the same shape.

        Raises:
            UnsupportedPlanError: if a part is not declared, or forward does more than hand on.
        """
        own = self.declaration
        for name in ("embedding", "final_norm", "head"):
            if getattr(own, name) is None:
                raise UnsupportedPlanError(
                    "cuts the model between parts, and the declaration does not name all of them",
                    field="strategy.pipeline_parallel_degree",
                    value=f"no {name} declared",
                    remedy=f"declare {name}=..., or plan with pipeline_parallel_degree limited "
                    "to 1",
                )
        taken = ForwardInputs.of_arguments(self.module, also=own.inputs)
        inputs = with_labels(taken, self.module)
        routes = follow(
            with_plain_linears(self.module),
            self._chain_paths(),
            example,
            first=inputs.first,
            others=inputs.others,
        )
        if any(route.takes(inputs.first) for route in routes.values()):
            inputs = replace(inputs, prepare=partly(with_first, inputs.first))
        self._check_nothing_beside()
        self._check_unshared("pipeline_parallel_degree", "more than 1")
        return OwnChain(self.module, own, inputs=inputs, routes=routes)

    def _blocks(self) -> nn.ModuleList | nn.Sequential:
        found = part(self.module, self.declaration.blocks)
        assert isinstance(found, nn.ModuleList | nn.Sequential)  # noqa: S101 - checked before
        return found

    def _chain_paths(self) -> list[str]:
        own = self.declaration
        blocks = [f"{own.blocks}.{index}" for index in range(len(self._blocks()))]
        return [str(own.embedding), *blocks, str(own.final_norm), str(own.head)]

    def _check_paths(self) -> None:
        own = self.declaration
        for name in ("embedding", "final_norm", "head", "blocks"):
            path = getattr(own, name)
            if path is not None and part(self.module, path) is None:
                raise _no_such_module(name, path, self.module)
        blocks = part(self.module, own.blocks)
        if not isinstance(blocks, nn.ModuleList | nn.Sequential) or len(blocks) == 0:
            raise ModelMismatchError(
                "is not a ModuleList or Sequential of blocks",
                field="declaration.blocks",
                value=f"{own.blocks}: {type(blocks).__qualname__}",
                remedy="name the list whose items are the model's blocks",
            )
        for name in ("column", "row", "norms"):
            for path in getattr(own, name):
                self._check_in_blocks(name, path)

    def _check_in_blocks(self, name: str, path: str) -> None:
        for index, block in enumerate(self._blocks()):
            found = unadapted(part(block, path))
            if found is None:
                raise _no_such_module(name, f"{path} in block {index}", block)
            if name != "norms" and not isinstance(found, nn.Linear):
                raise ModelMismatchError(
                    "is not a torch.nn.Linear",
                    field=f"declaration.{name}",
                    value=f"{path}: {type(found).__qualname__}",
                    remedy="name linears only",
                )

    def _second_weight(self) -> str | None:
        """Return what the head, or a module inside it, calls the embedding's weight."""
        own = self.declaration
        if own.embedding is None or own.head is None:
            return None
        embedding, head = part(self.module, own.embedding), part(self.module, own.head)
        weight = getattr(embedding, "weight", None)
        named = () if head is None or weight is None else head.named_parameters(own.head)
        return next((name for name, item in named if item is weight), None)

    def _gathered(self) -> dict[str, str | None]:
        if self.declaration.gathered is not None:
            return dict(self.declaration.gathered)
        parents = (path.rpartition(".")[0] for path in self.declaration.column)
        return dict.fromkeys(parent for parent in parents if parent)

    def _check_covered(self) -> None:
        """Raise unless sequence parallelism knows of every parameter how its gradient comes about.

        A parameter that sees part of the sequence gets part of its gradient, silently.
        """
        own = self.declaration
        inside = (*own.column, *own.row, *own.norms)
        if any("." not in path for path in own.column) and own.gathered is None:
            raise UnsupportedPlanError(
                "needs a module around the column linears that gathers the sequence",
                field="strategy.sequence_parallel",
                value=True,
                remedy="declare gathered={...}, or plan with sequence_parallel false",
            )
        parameters = dict(self.module.named_parameters())
        for name in self._beside():
            if name in parameters:
                raise UnsupportedPlanError(
                    "gives each rank its own tokens, of which alone a parameter outside of all "
                    "parts would learn",
                    field="strategy.sequence_parallel",
                    value=name,
                    remedy="move it into a block, and declare it among column, row or norms, or "
                    "plan with sequence_parallel false",
                )
        for name, _ in self._blocks()[0].named_parameters():
            if not any(name.startswith(f"{path}.") for path in inside):
                raise UnsupportedPlanError(
                    "does not know how to treat a parameter that the declaration leaves out",
                    field="strategy.sequence_parallel",
                    value=f"{own.blocks}.0.{name}",
                    remedy="declare it among column, row or norms, or plan with "
                    "sequence_parallel false",
                )

    def _is_token_local(self, gathering: Sequence[str], *, tell: Tell | None = None) -> bool:
        """Return unless each token is known to need others outside of what may look at them."""
        own = self.declaration
        if own.head is None or own.embedding is None:
            return True
        inputs = ForwardInputs.of_arguments(self.module, also=own.inputs)
        found = is_token_local(
            with_plain_linears(self.module),
            gathering,
            embedding=own.embedding,
            head=own.head,
            token_count=self._shapes().vocabulary_size,
            others=inputs.others,
            tell=tell,
        )
        return found is not False

    def _check_feature_local(self, degree: int) -> None:
        """Raise if a rank's part of what column linears put out is known to need the others'."""
        own = self.declaration
        blocks = [f"{own.blocks}.{index}" for index in range(len(self._blocks()))]
        column, row = (
            [f"{block}.{path}" for block in blocks for path in paths]
            for paths in (own.column, own.row)
        )
        inputs = ForwardInputs.of_arguments(self.module, also=own.inputs)
        found = is_feature_local(
            with_plain_linears(self.module),
            degree,
            column=column,
            row=row,
            head=str(own.head),
            token_count=self._shapes().vocabulary_size,
            others=inputs.others,
        )
        if found is False:
            raise UnsupportedPlanError(
                f"gives each rank a part of what {', '.join(own.column)} put out, and forward "
                f"needs all of it before {', '.join(own.row)}",
                field="strategy.tensor_parallel_degree",
                value=degree,
                remedy="treat each head, or each feature, alone, or plan with "
                "tensor_parallel_degree limited to 1",
            )

    def _check_token_local(self) -> None:
        """Raise if what ranks do with their own tokens alone is known to need others' too."""
        blocks = [f"{self.declaration.blocks}.{index}" for index in range(len(self._blocks()))]
        paths = [f"{block}.{path}".rstrip(".") for block in blocks for path in self._gathered()]
        if not self._is_token_local(paths):
            raise UnsupportedPlanError(
                "gives each rank its own tokens, and forward looks at others outside of the "
                f"modules that gather them: {', '.join(self._gathered())}",
                field="strategy.sequence_parallel",
                value=True,
                remedy="have one of these do it, declare gathered={...} of what does, or plan with "
                "sequence_parallel false",
            )

    def _check_unshared(self, field: str, degree: object) -> None:
        """Raise if two parts share a parameter, but for the embedding's weight and the head."""
        known: dict[nn.Parameter, str] = {}
        for path in self._chain_paths():
            for name, parameter in self.module.get_submodule(path).named_parameters(path):
                is_tied = name == self._second_weight()
                first = known.setdefault(parameter, name)
                if first != name and not is_tied:
                    raise UnsupportedPlanError(
                        f"would make two of a parameter that {first} and {name} share",
                        field=f"strategy.{field}",
                        value=degree,
                        remedy=f"give each part parameters of its own, or plan with {field} "
                        "limited to 1",
                    )

    def _beside(self) -> list[str]:
        """Return the parameters and buffers that lie outside of all parts."""
        paths = self._chain_paths()
        named = (*self.module.named_parameters(), *self.module.named_buffers())
        return [name for name, _ in named if not any(name.startswith(f"{path}.") for path in paths)]

    def _check_nothing_beside(self) -> None:
        """Raise if a parameter or buffer lies outside of all parts: no stage would hold it."""
        for name in self._beside():
            raise UnsupportedPlanError(
                "cuts the model between parts, and this belongs to none of them",
                field="strategy.pipeline_parallel_degree",
                value=name,
                remedy="move it into the embedding, a block, the norm or the head, or plan "
                "with pipeline_parallel_degree limited to 1",
            )

    def _shapes(self) -> Shapes:
        own = self.declaration
        block = self._blocks()[0]
        split = [_linear(block, path).out_features for path in own.column]
        split += [_linear(block, path).in_features for path in own.row]
        head = part(self.module, own.head or "")
        embedding = part(self.module, own.embedding or "")
        hidden = getattr(head, "in_features", getattr(embedding, "embedding_dim", 1))
        heads = own.head_count or 1
        return Shapes(
            hidden_size=int(hidden),
            vocabulary_size=int(getattr(embedding, "num_embeddings", 1)),
            head_count=heads,
            key_value_head_count=own.key_value_head_count or heads,
            ffn_size=math.gcd(*split) if split else 1,
        )


class OwnChain(nn.Module):
    """The module's own parts under their own names, called one after another."""

    def __init__(
        self,
        module: nn.Module,
        declaration: Declaration,
        *,
        inputs: ForwardInputs,
        routes: Mapping[str, Route],
    ) -> None:
        super().__init__()
        self.inputs = inputs
        self._routes = routes
        parent, _, name = declaration.blocks.rpartition(".")
        listed = module.get_submodule(declaration.blocks)
        blocks = nn.ModuleDict({str(i): block for i, block in enumerate(listed.children())})
        setattr(module.get_submodule(parent), name, blocks)
        for child_name, child in module.named_children():
            self.add_module(child_name, child)
        self._paths = declaration

    def forward(self, inputs_or_hidden: torch.Tensor, **named: torch.Tensor) -> torch.Tensor:
        """Return the head's output on the last stage, hidden states on the others."""
        hidden, paths = inputs_or_hidden, self._paths
        embedding, blocks = paths.embedding or "", self.get_submodule(paths.blocks)
        inside = [f"{paths.blocks}.{name}" for name, _ in blocks.named_children()]
        for path in (embedding, *inside, paths.final_norm or "", paths.head or ""):
            module = part(self, path)
            if module is not None:
                hidden = self._routes[path].call(module, hidden, named)
        return hidden


def _linear(block: nn.Module, path: str) -> nn.Linear:
    found = unadapted(part(block, path))
    assert isinstance(found, nn.Linear), path  # noqa: S101 - checked before
    return found


def _undeclared(field: str, degree: int, name: str) -> UnsupportedPlanError:
    return UnsupportedPlanError(
        f"needs the model's {name}, which the declaration leaves out",
        field=f"strategy.{field}",
        value=degree,
        remedy=f"declare {name}=..., or plan with {field} limited to 1",
    )


def _no_such_module(name: str, path: str, module: nn.Module) -> ModelMismatchError:
    names = ", ".join(child for child, _ in module.named_children())
    return ModelMismatchError(
        "is not a module of the model",
        field=f"declaration.{name}",
        value=path,
        remedy=f"use a path that named_modules() lists; on top there are {names}",
    )
