"""Model graph: a chain of runs of identical blocks between an embedding and a head.

This is our own model document, and what every importer produces. It states shapes only; what
they cost is `planner.workload`'s business. `docs/model-graph.md` explains it by example.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Self

from pydantic import Field, model_validator

from planner.errors import DocumentError
from planner.schema.block import (
    Activation,
    Attention,
    Block,
    CrossAttention,
    DenseFeedForward,
    FeedForward,
    GroupedQueryAttention,
    LatentAttention,
    MixtureFeedForward,
    NoAttention,
    NoFeedForward,
    later,
)
from planner.schema.compressed import CompressedAttention, KeyCompression, KeyIndex
from planner.schema.document import Count, Document, Name, Part, PositiveCount
from planner.schema.entry import Entry, Exit, Product
from planner.schema.measured import MeasuredPart
from planner.schema.mixer import (
    GatedDeltaMixer,
    LinearAttentionMixer,
    Mixer,
    SelectiveScanMixer,
    ShortConvolutionMixer,
    StateSpaceMixer,
)
from planner.schema.norm import Norm, NormPlacement, TokenCount

__all__ = [
    "Activation",
    "Attention",
    "Block",
    "BlockRun",
    "CompressedAttention",
    "CrossAttention",
    "DenseFeedForward",
    "Entry",
    "Exit",
    "FeedForward",
    "GatedDeltaMixer",
    "GroupedQueryAttention",
    "KeyCompression",
    "KeyIndex",
    "LatentAttention",
    "LinearAttentionMixer",
    "Mixer",
    "MixtureFeedForward",
    "ModelGraph",
    "NoAttention",
    "NoFeedForward",
    "Norm",
    "NormPlacement",
    "Product",
    "RunPart",
    "SelectiveScanMixer",
    "ShortConvolutionMixer",
    "StateSpaceMixer",
]

Stream = tuple[int | None, int]  # tokens per sequence (None: the job's sequence_length), width


class RunPart(StrEnum):
    """What a run belongs to: the decoder that ends in the head, or a tower before it."""

    ENCODER = "encoder"
    DECODER = "decoder"


STAND_IN = Block.model_construct(  # without a validator at import
    attention=GroupedQueryAttention.model_construct(
        head_count=1, key_value_head_count=1, head_size=1
    ),
    feed_forward=DenseFeedForward.model_construct(ffn_size=1),
)
"""What stands for the shape of a block that is measured instead, and is priced nowhere."""


class BlockRun(Part):
    """Consecutive identical blocks, of one shape or as a trace has `measured` them.

    A decoder's runs have the model's hidden size and the job's sequence length. An encoder's may
    have their own `hidden_size` and `tokens_per_sequence` (patches, source tokens); one with an
    `entry` begins a tower of its own, which reads token embeddings unless that entry has products,
    or a table with a row for each of the run's tokens: learned queries. `carried_width` counts
    elements a token of earlier blocks' outputs that travel beside its rows, because the exit or
    later blocks read them too.
    """

    block: Block = later(STAND_IN)
    block_count: PositiveCount
    measured: MeasuredPart | None = later(None)
    part: RunPart = later(RunPart.DECODER)
    hidden_size: PositiveCount | None = later(None)
    tokens_per_sequence: TokenCount | None = later(None)
    carried_width: Count = later(0)
    entry: Entry | None = later(None)
    exit: Exit | None = later(None)

    def width(self, model_hidden_size: int) -> int:
        """Return the run's hidden size."""
        return self.hidden_size or model_hidden_size

    def reads_token_embeddings(self, model_hidden_size: int) -> bool:
        """Return whether what begins with this run reads the model's own token embeddings."""
        if self.entry is None:
            return True
        learned = (self.tokens_per_sequence or 0) * self.width(model_hidden_size)
        return not self.entry.products and not 0 < learned <= self.entry.table_elements

    def output(self, model_hidden_size: int) -> Stream:
        """Return the tokens per sequence (None: the job's) and width that leave the run."""
        tokens, width = self.tokens_per_sequence, self.width(model_hidden_size)
        if self.exit is None:
            return tokens, width
        return self.exit.output_tokens_per_sequence or tokens, self.exit.output_size or width


class ModelGraph(Document):
    """A decoder, perhaps behind towers: embedding, runs of blocks, final norm, LM head.

    `learned_position_count` is 0 where positions are rotary. `final_logit_softcapping` is the cap
    that logits approach, c tanh(x / c). `head_token_ratio` is the share of positions that the head
    reads: below 1 in masked language models that gather those to predict. `assumptions` says in
    words what the importer had to assume. A `vocabulary_size` of 0 is that of a model whose first
    run's entry reads pictures or sound. `embedding_size` is the width of a token embedding narrower
    than the model, `before_head` what stands between final norm (`null`: none) and logits, and
    `head_size` the logits of a token where they are not the vocabulary: classes, or 0 where nothing
    follows the blocks. `measured_embedding` and `measured_head` stand, in a
    traced model, for all before and after its measured blocks; its vocabulary is then the outputs
    of a token.
    """

    name: Name
    architecture: Name
    hidden_size: PositiveCount
    vocabulary_size: Count
    tied_embeddings: bool = False
    learned_position_count: Count = 0
    final_norm: Norm | None = Norm.RMS
    head_bias: bool = False
    final_logit_softcapping: Annotated[float, Field(gt=0, le=1e6)] | None = later(None)
    head_token_ratio: Annotated[float, Field(gt=0, le=1)] = later(1.0)
    maximum_sequence_length: PositiveCount
    runs: Annotated[tuple[BlockRun, ...], Field(min_length=1, max_length=1024)]
    assumptions: tuple[str, ...] = ()
    embedding_size: PositiveCount | None = later(None)
    before_head: Entry | None = later(None)
    head_size: Count | None = later(None)
    measured_embedding: MeasuredPart | None = later(None)
    measured_head: MeasuredPart | None = later(None)

    @property
    def logit_count(self) -> int:
        """Return the logits of a token."""
        return self.vocabulary_size if self.head_size is None else self.head_size

    @property
    def head_input_size(self) -> int:
        """Return the width of the row that the head reads."""
        before = self.before_head
        return before.products[-1].outer_size if before and before.products else self.hidden_size

    @property
    def is_measured(self) -> bool:
        """Return whether a trace measured the model, at its `maximum_sequence_length`."""
        return any(run.measured is not None for run in self.runs)

    @property
    def block_count(self) -> int:
        """Return the number of blocks in the chain."""
        return sum(run.block_count for run in self.runs)

    @property
    def tower_block_count(self) -> int:
        """Return the number of blocks before the decoder's."""
        return sum(run.block_count for run in self.runs if run.part is RunPart.ENCODER)

    @property
    def is_hybrid(self) -> bool:
        """Return whether decoder blocks scan states, or lack a feed-forward after what mixes.

        Programs for such models count what mixes and what feeds forward as a layer each.
        """
        return any(
            isinstance(run.block.mixer, StateSpaceMixer | SelectiveScanMixer)
            or isinstance(run.block.feed_forward, NoFeedForward)
            for run in self.runs
            if run.part is RunPart.DECODER
        )

    @property
    def decoder_layer_count(self) -> int:
        """Return the decoder's layers as programs count them: a hybrid's blocks are up to two."""
        hybrid = self.is_hybrid
        return sum(
            run.block_count
            * (2 if hybrid and not isinstance(run.block.feed_forward, NoFeedForward) else 1)
            for run in self.runs
            if run.part is RunPart.DECODER
        )

    def towers(self) -> tuple[tuple[int, ...], ...]:
        """Return the indices of the encoder runs, tower by tower."""
        towers: list[list[int]] = []
        for index, run in enumerate(self.runs):
            if run.part is RunPart.ENCODER:
                if not towers or run.entry is not None:
                    towers.append([])
                towers[-1].append(index)
        return tuple(tuple(tower) for tower in towers)

    @model_validator(mode="after")
    def _chain_holds(self) -> Self:
        """Raise unless each run can follow the one before it.

        Raises:
            DocumentError: naming the field that does not go with the chain.
        """
        for index, run in enumerate(self.runs):
            self._check_described(index, run)
            self._check_part(index, run)
        self._check_ends()
        sources: set[Stream] = set()
        for tower in self.towers():
            self._check_tower(tower, sources)
            sources.add(self.runs[tower[-1]].output(self.hidden_size))
        decoders = [i for i, run in enumerate(self.runs) if run.part is RunPart.DECODER]
        self._check_sources(decoders, sources)
        self._check_merged()
        return self

    def _check_described(self, index: int, run: BlockRun) -> None:
        """Raise unless the run's block is either of a shape or measured, as all of the model is."""
        shaped = run.block is not STAND_IN and run.block != STAND_IN
        if shaped == (run.measured is not None):
            raise DocumentError(
                "has both a shape and what a trace measured" if shaped else "is required",
                field=f"runs.{index}.block",
                remedy="leave one of them out" if shaped else "add the field",
            )
        ends = (self.measured_embedding, self.measured_head)
        if any((end is None) is not (run.measured is None) for end in ends):
            raise DocumentError(
                "a traced model has a measured embedding and head, and measured blocks only",
                field=f"runs.{index}",
                value="measured" if run.measured is not None else "block",
                remedy="trace the whole model, or write all blocks as shapes",
            )

    def _check_ends(self) -> None:
        """Raise unless something is embedded, and a tied head is as large as the embedding."""
        entry = self.runs[0].entry
        if not self.vocabulary_size and (entry is None or not entry.products):
            raise DocumentError(
                "must be 1 or more where no run reads pictures or sound",
                field="vocabulary_size",
                value=0,
                remedy="give the tokens of the embedding, or the first run an entry with products",
            )
        narrow = self.embedding_size or self.hidden_size
        if self.tied_embeddings and (self.logit_count, self.head_input_size) != (
            self.vocabulary_size,
            narrow,
        ):
            raise DocumentError(
                f"the head is {self.head_input_size} x {self.logit_count}, and the embedding "
                f"{self.vocabulary_size} x {narrow}",
                field="tied_embeddings",
                value=True,
                remedy="set it to false, or make both of one size",
            )

    def _check_part(self, index: int, run: BlockRun) -> None:
        """Raise unless the decoder is one piece at the end, as wide and long as the model."""
        where = f"runs.{index}"
        if run.part is RunPart.ENCODER:
            if index == len(self.runs) - 1:
                raise DocumentError(
                    "the last run must be the decoder's, which ends in the head",
                    field=f"{where}.part",
                    value="encoder",
                    remedy="add the decoder's runs after the encoder's",
                )
            if index and self.runs[index - 1].part is RunPart.DECODER:
                raise DocumentError(
                    "an encoder cannot follow the decoder",
                    field=f"{where}.part",
                    value="encoder",
                    remedy="list all encoder runs before the decoder's",
                )
            return
        for name, expected in (("hidden_size", self.hidden_size), ("tokens_per_sequence", None)):
            value = getattr(run, name)
            if value is not None and value != expected:
                raise DocumentError(
                    "only encoder runs may have their own",
                    field=f"{where}.{name}",
                    value=value,
                    remedy=f'leave it out, or set {where}.part to "encoder"',
                )
        if run.exit is not None:
            raise DocumentError(
                "a decoder run ends in the next run or in the head",
                field=f"{where}.exit",
                remedy="leave it out; final_norm and the head are the model's own",
            )

    def _check_tower(self, tower: tuple[int, ...], sources: set[Stream]) -> None:
        """Raise unless each run of the tower takes what the run before it puts out."""
        first = self.runs[tower[0]]
        width = first.width(self.hidden_size)
        if first.reads_token_embeddings(self.hidden_size) and width != self.hidden_size:
            raise DocumentError(
                f"a tower that reads token embeddings is as wide as the model, {self.hidden_size}",
                field=f"runs.{tower[0]}.hidden_size",
                value=first.hidden_size,
                remedy="give its entry the product that embeds its own input, or a table with a "
                "row for each of its tokens, or use the model's",
            )
        for before, index in pairwise(tower):
            run = self.runs[index]
            own = (run.tokens_per_sequence, run.width(self.hidden_size))
            given = self.runs[before].output(self.hidden_size)
            if own != given:
                raise DocumentError(
                    f"takes {_shown(own)}, but the run before it puts out {_shown(given)}",
                    field=f"runs.{index}",
                    remedy=f"give runs.{before} an exit that puts out what runs.{index} takes, or "
                    "give this run an entry to begin a tower of its own",
                )
        self._check_sources(tower, sources)

    def _check_sources(self, indices: Sequence[int], sources: set[Stream]) -> None:
        """Raise unless every cross-attention reads what a tower before puts out."""
        for index in indices:
            for name in ("attention", "cross_attention"):
                cross = getattr(self.runs[index].block, name)
                if not isinstance(cross, CrossAttention):
                    continue
                read = (cross.source_tokens_per_sequence, cross.source_width)
                if read not in sources:
                    known = "; ".join(sorted(map(_shown, sources))) or "there is no tower before it"
                    raise DocumentError(
                        f"reads {_shown(read)}, which no tower before it puts out",
                        field=f"runs.{index}.block.{name}",
                        remedy=f"make source_tokens_per_sequence and source_width those of an "
                        f"earlier tower's output: {known}",
                    )

    def _check_merged(self) -> None:
        """Raise unless what no block reads across can stand among the token embeddings."""
        read = self.cross_sources()
        for tower in self.towers():
            output = self.runs[tower[-1]].output(self.hidden_size)
            if output not in read and output[1] != self.hidden_size:
                raise DocumentError(
                    f"its output is {output[1]} wide and no block reads it across, but the "
                    f"decoder is {self.hidden_size} wide",
                    field=f"runs.{tower[-1]}.exit",
                    remedy=f"give it an exit with output_size {self.hidden_size}, or decoder "
                    "blocks with a cross-attention to it",
                )

    def cross_sources(self) -> frozenset[Stream]:
        """Return the tokens per sequence and widths that cross-attentions read."""
        crosses = (
            cross
            for run in self.runs
            for cross in (run.block.attention, run.block.cross_attention)
            if isinstance(cross, CrossAttention)
        )
        return frozenset((c.source_tokens_per_sequence, c.source_width) for c in crosses)


def _shown(stream: Stream) -> str:
    tokens, width = stream
    return f"{'sequence_length' if tokens is None else tokens} tokens of {width}"
