"""Moves: random changes of a draft that stay inside the space that the planner searches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from random import Random

from benchmarks.draft import Draft, even_cuts, virtual_stage_count
from planner.cost.configuration import Choice, Configuration
from planner.requests.resolution import Request
from planner.schema.job import Limits
from planner.schema.strategy import ActivationCheckpointing, Offload
from planner.space.choices import block_choices, edge_choices
from planner.space.degrees import enumerate_configurations
from planner.space.schedules import skips_checkpointing

NEIGHBOURS_LOOKED_AT = 64
NEIGHBOURS_MOST = 20000
NEIGHBOUR_DISTANCE = 4

Move = Callable[[Draft, Random], Draft]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves:
    """The searched space of one request, and ways to go about in it."""

    request: Request
    configurations: Sequence[Configuration]
    blocks: tuple[Choice, ...]
    edges: tuple[Choice, ...]

    @staticmethod
    def of(request: Request, *, limits: Limits | None = None) -> Moves:
        """Return the moves within the request's space, or that of other limits."""
        job = request.job.resolved
        if limits is not None:
            job = job.model_copy(update={"limits": limits})
        space = enumerate_configurations(request.model.resolved, request.hardware, job)
        return Moves(
            request=request,
            configurations=space.rows,
            blocks=block_choices(job.limits, job.offload_to),
            edges=edge_choices(job.limits, job.offload_to),
        )

    def start(self, configuration: Configuration, choice: Choice) -> Draft:
        """Return an even draft with one choice for all blocks, and its like for the edges."""
        count = self.request.model.resolved.block_count
        kept = tuple(item for item in choice.offload if item is not Offload.ACTIVATIONS)
        edge = Choice(zero_stage=choice.zero_stage, offload=kept)
        edge = edge if edge in self.edges else self.edges[0]
        return Draft(
            configuration=configuration,
            cuts=even_cuts(count, virtual_stage_count(configuration)),
            choices=(choice,) * count,
            embedding=edge,
            head=edge,
        )

    def choices(self, configuration: Configuration) -> Sequence[Choice]:
        """Return the choices of a block that are searched under the configuration's schedule."""
        job = self.request.job.resolved
        if configuration.pipeline_parallel_degree == 1 or not skips_checkpointing(
            job, configuration.pipeline_schedule
        ):
            return self.blocks
        none = ActivationCheckpointing.NONE
        return [choice for choice in self.blocks if choice.activation_checkpointing is none]

    def random(self, draft: Draft, random: Random) -> Draft:
        """Return the draft after one random move."""
        moves: tuple[Move, ...] = (
            self.recut,
            self.recut,
            self.rechoose,
            self.rechoose,
            self.rechoose_everywhere,
            self.rechoose_edge,
            self.reconfigure,
        )
        return random.choice(moves)(draft, random)

    def recut(self, draft: Draft, random: Random) -> Draft:
        """Move a block or a few from one stage to another; stages between them shift along."""
        cuts = list(draft.cuts)
        if len(cuts) < 3:
            return self.rechoose(draft, random)
        low, high = sorted(random.sample(range(len(cuts) - 1), 2))
        step = random.choice((-2, -1, -1, 1, 1, 2))
        for place in range(low + 1, high + 1):
            cuts[place] += step
        if any(b <= a for a, b in pairwise(cuts)):
            return self.rechoose(draft, random)
        return replace(draft, cuts=tuple(cuts))

    def rechoose(self, draft: Draft, random: Random) -> Draft:
        """Give some consecutive blocks of one stage another choice."""
        stage = random.randrange(len(draft.cuts) - 1)
        first, end = draft.cuts[stage], draft.cuts[stage + 1]
        low, high = sorted(random.choices(range(first, end + 1), k=2))
        low, high = (first, end) if low == high else (low, high)
        choice = random.choice(self.choices(draft.configuration))
        return replace(draft, choices=_with(draft.choices, low, high, choice))

    def rechoose_everywhere(self, draft: Draft, random: Random) -> Draft:
        """Replace one of the draft's choices by another in all stages."""
        old = random.choice(draft.choices)
        new = random.choice(self.choices(draft.configuration))
        return replace(draft, choices=tuple(new if c == old else c for c in draft.choices))

    def rechoose_edge(self, draft: Draft, random: Random) -> Draft:
        """Give the embedding or the head another choice."""
        edge = random.choice(self.edges)
        return (
            replace(draft, embedding=edge) if random.random() < 0.5 else replace(draft, head=edge)
        )

    def reconfigure(self, draft: Draft, random: Random) -> Draft:
        """Go to the nearest of some random configurations, with the same choices where legal."""
        count = min(NEIGHBOURS_LOOKED_AT, len(self.configurations))
        offered = [
            self.configurations[random.randrange(len(self.configurations))] for _ in range(count)
        ]
        offered = [c for c in offered if c != draft.configuration]
        if not offered:
            return self.rechoose(draft, random)
        return self.moved(draft, min(offered, key=lambda c: distance(c, draft.configuration)))

    def neighbours(self, configuration: Configuration) -> list[Configuration]:
        """Return the configurations that differ from this one in four fields at most.

        Fields hang together: a degree cannot change alone. Of a large space a sample is looked at.
        """
        stride = max(len(self.configurations) // NEIGHBOURS_MOST, 1)
        sample = (self.configurations[i] for i in range(0, len(self.configurations), stride))
        return [c for c in sample if 0 < distance(c, configuration) <= NEIGHBOUR_DISTANCE]

    def moved(self, draft: Draft, configuration: Configuration) -> Draft:
        """Return the draft under another configuration."""
        stages = virtual_stage_count(configuration)
        kept = len(draft.cuts) == stages + 1
        allowed = self.choices(configuration)
        return replace(
            draft,
            configuration=configuration,
            cuts=draft.cuts if kept else even_cuts(len(draft.choices), stages),
            choices=tuple(c if c in allowed else allowed[0] for c in draft.choices),
        )


def distance(a: Configuration, b: Configuration) -> int:
    """Return in how many fields two configurations differ."""
    return sum(getattr(a, field.name) != getattr(b, field.name) for field in fields(a))


def _with(choices: Sequence[Choice], low: int, high: int, choice: Choice) -> tuple[Choice, ...]:
    return (*choices[:low], *([choice] * (high - low)), *choices[high:])
