"""Chain: which tokens its parts work on, and what travels along it from stage to stage.

The token embedding sits on the first stage, so that embedded text waits through every tower; what
a tower puts out travels on to the last block that reads it across.
"""

from __future__ import annotations

from planner.schema.model import BlockRun, CrossAttention, ModelGraph, RunPart
from planner.workload.layer import Boundary

Stream = tuple[int | None, int]  # tokens per sequence (None: the job's), elements per token


def boundaries(graph: ModelGraph) -> tuple[Boundary, ...]:
    """Return for each run what crosses a cut after one of its blocks.

    A decoder alone: its own row for every token. In a tower: its own rows and what they carry
    along, the embedded text, and the embedded input of towers that follow. From where a tower has
    ended: what it put out, as far as a later block reads it. After the last block of a tower or of
    its readers this is more than must travel, by what the tower puts out.
    """
    last_readers = _last_readers(graph)
    return tuple(
        Boundary(streams=_streams(graph, index, last_readers)) for index in range(len(graph.runs))
    )


def tower_lengths(graph: ModelGraph) -> tuple[int, ...]:
    """Return the tokens per sequence that towers have, or put out for others to read, of their own.

    What is as long as the job's sequence is not among them.
    """
    lengths = {run.tokens_per_sequence for run in graph.runs}
    lengths |= {tokens for tokens, _ in graph.cross_sources()}
    return tuple(sorted(length for length in lengths if length is not None))


def _streams(graph: ModelGraph, index: int, last_readers: dict[Stream, int]) -> tuple[Stream, ...]:
    run = graph.runs[index]
    tokens, width = _input(run, graph)
    if run.measured is not None:
        width = run.measured.output_size
    width *= run.block.residual_stream_count
    streams = [(tokens, width + run.carried_width)]
    if run.part is RunPart.ENCODER:
        streams.append((None, graph.hidden_size))
    for tower in graph.towers():
        if tower[0] > index:
            streams.append(_input(graph.runs[tower[0]], graph))
        output = graph.runs[tower[-1]].output(graph.hidden_size)
        if tower[-1] < index <= last_readers.get(output, -1):
            streams.append(output)
    return tuple(streams)


def _input(run: BlockRun, graph: ModelGraph) -> Stream:
    return run.tokens_per_sequence, run.width(graph.hidden_size)


def _last_readers(graph: ModelGraph) -> dict[Stream, int]:
    """Return for what is read across the last run after a block of which it is still read."""
    last: dict[Stream, int] = {}
    for index, run in enumerate(graph.runs):
        for cross in (run.block.attention, run.block.cross_attention):
            if isinstance(cross, CrossAttention):
                read = (cross.source_tokens_per_sequence, cross.source_width)
                last[read] = index if run.block_count > 1 else index - 1
    return last
