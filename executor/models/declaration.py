"""Declaration: what a model says about itself, and all that the techniques know of it.

A model is a chain: embedding, blocks, final norm, head. It names the modules that tensor
parallelism splits; a technique reads the declaration and never the model's class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import nn

from executor.models.file_names import FileNames
from executor.models.forward_inputs import ForwardInputs
from executor.models.positions import SequencePart

InitialValue = Callable[[str, torch.Size, torch.Generator], torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockDeclaration:
    """Modules of one block, by path inside the block.

    `column` linears split their outputs over tensor-parallel ranks and `row` linears their inputs.
    `gathered` modules need the whole sequence: path to the name of the argument, `None` where it
    is the only positional one. `norms` work on each token alone. `head_norms` work on each head
    alone, after the heads are split, and `routers` choose experts for each token. `experts` is
    where a mixture's routed experts stand (`executor.models.experts.RoutedExperts`).
    """

    norms: tuple[str, ...]
    gathered: dict[str, str | None]
    column: tuple[str, ...]
    row: tuple[str, ...]
    head_norms: tuple[str, ...] = ()
    routers: tuple[str, ...] = ()
    experts: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """Sizes that the tensor-parallel degree must divide, and the width between blocks."""

    hidden_size: int
    vocabulary_size: int
    head_count: int
    key_value_head_count: int
    ffn_size: int
    expert_count: int = 0
    expert_ffn_size: int = 0

    def divided_by_tensor_parallel(self) -> dict[str, int]:
        """Return the sizes that tensor parallelism divides, by name."""
        return {
            "head_count": self.head_count,
            "key_value_head_count": self.key_value_head_count,
            "ffn_size": self.ffn_size,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDeclaration:
    """Where the parts of the chain stand in the model, and how its parameters begin.

    `second_weight` is what the head, or a module inside it, calls the embedding's weight where both
    have it (`tied_embeddings`), its own weight if left out.
    `initial_value(name, shape, generator)` returns a parameter by its name in the unsplit model, or
    a tile of a large one, whose elements are all drawn alike; without it a module's own values are
    the first. `restore_buffers` computes buffers again that no checkpoint holds. `file_names` is
    how Hugging Face's files hold the parameters.
    `tell_sequence_parts` tells a chain that computes positions itself into how many parts the
    sequence is split between its blocks. `tell_sequence_part` tells it which tokens of a sequence
    this rank has, where ranks share sequences; without it they cannot. `beside_embedding` are
    modules that only the embedding's stage needs, such as a table of positions.
    `inputs` are the parts of a batch that its forward takes.
    `tensor_parallel_obstacle` says why the model cannot be split over tensor-parallel ranks.
    """

    embedding: str
    blocks: str
    final_norm: str
    head: str
    tied_embeddings: bool
    block: BlockDeclaration
    shapes: Shapes
    block_count: int
    second_weight: str | None = None
    initial_value: InitialValue | None = None
    file_names: FileNames = field(default_factory=FileNames)
    tell_sequence_parts: Callable[[nn.Module, int], None] = field(default=lambda *_: None)
    restore_buffers: Callable[[nn.Module, torch.device], None] = field(default=lambda *_: None)
    tell_sequence_part: Callable[[nn.Module, SequencePart], None] | None = None
    beside_embedding: tuple[str, ...] = ()
    tensor_parallel_obstacle: str | None = None
    inputs: ForwardInputs = field(default_factory=ForwardInputs)

    @staticmethod
    def whole(
        restore_buffers: Callable[[nn.Module, torch.device], None],
        file_names: FileNames,
        inputs: ForwardInputs,
    ) -> ModelDeclaration:
        """Return the declaration of a module whose parts are not known."""
        return ModelDeclaration(
            embedding="",
            blocks="",
            final_norm="",
            head="",
            tied_embeddings=False,
            block=BlockDeclaration(norms=(), gathered={}, column=(), row=()),
            shapes=Shapes(
                hidden_size=1,
                vocabulary_size=1,
                head_count=1,
                key_value_head_count=1,
                ffn_size=1,
            ),
            block_count=0,
            restore_buffers=restore_buffers,
            file_names=file_names,
            inputs=inputs,
        )

    @property
    def is_whole(self) -> bool:
        """Return whether no parts are known: the model is applied as one unit."""
        return not self.blocks

    @property
    def embedding_weight(self) -> str:
        """Return the name of the embedding's weight."""
        return f"{self.embedding}.weight"

    @property
    def head_weight(self) -> str:
        """Return the name of the head's weight, or of the embedding's that is inside it."""
        return self.second_weight or f"{self.head}.weight"

    def block_path(self, index: int) -> str:
        """Return where block `index` of the unsplit model stands."""
        return f"{self.blocks}.{index}"


def part(model: nn.Module, path: str) -> nn.Module | None:
    """Return the module at `path`, or `None` where the split removed it."""
    found: object = model
    for name in path.split("."):
        found = getattr(found, name, None)
    return found if isinstance(found, nn.Module) else None


def remove_part(model: nn.Module, path: str) -> None:
    """Take the module at `path` out of `model`; the chain passes over what is not there."""
    parent, _, name = path.rpartition(".")
    setattr(model.get_submodule(parent), name, None)
