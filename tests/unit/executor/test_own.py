"""What a declaration of a user's own module says, and what is refused of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

pytest.importorskip("torch", reason="no package torch")

import numpy as np
import torch
from torch import nn

from executor.errors import ModelMismatchError, UnsupportedPlanError
from executor.models.declared import subject
from executor.models.initial_state import InitialState
from executor.models.own import Declaration, OwnModel
from planner.schema.job import Job
from planner.schema.strategy import Strategy

PARTS = {"embedding": "embed", "final_norm": "norm", "head": "head"}
TOKENS = torch.zeros((2, 4), dtype=torch.long, device="meta")


class Chain(nn.Module):
    """Embedding, two linear blocks, norm and head."""

    def __init__(self, *, tied: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(16, 8)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 12), nn.Linear(12, 8)) for _ in "ab")
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 16, bias=False)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        hidden = self.embed(tokens)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(self.norm(hidden))


class Scaled(Chain):
    """The same, but its embedding is scaled on the way to the first block."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        hidden = self.embed(tokens) * 2.0
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(self.norm(hidden))


class Routed(nn.Module):
    """A block that asks its values which tokens go where."""

    def __init__(self) -> None:
        super().__init__()
        self.router, self.linear = nn.Linear(8, 2), nn.Linear(8, 8)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return hidden states, of which some have met the linear."""
        chosen = self.router(hidden).argmax(-1) == 0
        if chosen.any():
            rows = self.linear(hidden[chosen])
            hidden = hidden.masked_scatter(chosen.unsqueeze(-1), rows)
        return hidden


class Mixture(Chain):
    """The same, of blocks that route tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Routed() for _ in "ab")


class Softened(Chain):
    """The same, with something after its head."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        return super().forward(tokens).softmax(-1)


class Reversed(Chain):
    """The same, its blocks in another order."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        hidden = self.blocks[0](self.blocks[1](self.embed(tokens)))
        return self.head(self.norm(hidden))


class Beside(Chain):
    """The same, with a parameter of no part."""

    def __init__(self) -> None:
        super().__init__()
        self.spare = nn.Parameter(torch.zeros(3))


class Sharing(Chain):
    """The same, with one matrix in both blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks[1][0].weight = self.blocks[0][0].weight


class Tabled(Chain):
    """The same, with tensors that are neither parameters nor buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.arange(3.0)
        self.blocks[0].tables = {"twice": [2 * self.table]}
        self.weights = [self.embed.weight]


class Lazy(Chain):
    """The same, with a head that waits for its first input."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.LazyLinear(16)


def own(build: Callable[[], nn.Module], **declared: object) -> OwnModel:
    with torch.device("meta"):
        module = build()
    declaration = Declaration(**{"blocks": "blocks", **declared})  # type: ignore[arg-type]
    return OwnModel(
        module=module,
        declaration=declaration,
        initial_state=InitialState(build, seed=3),
        seed=3,
    )


def test_a_chain_gives_what_the_module_gives() -> None:
    torch.manual_seed(3)
    module = Chain()
    tokens = torch.randint(0, 16, (2, 4))
    expected = module(tokens)
    chain = own(Chain, **PARTS).pipelined(TOKENS)
    names = [name for name, _ in chain.named_parameters()]
    assert names == [name for name, _ in module.named_parameters()]
    chain.to_empty(device="cpu")
    chain.load_state_dict(module.state_dict())
    torch.testing.assert_close(chain(tokens), expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (Scaled, "what blocks.0 is given is not what the part before it returned"),
        (Softened, "forward does more after its head"),
        (Reversed, "forward calls blocks.1 where blocks.0 should be"),
    ],
)
def test_a_forward_that_does_more_than_hand_on_is_not_cut(
    build: Callable[[], nn.Module], said: str
) -> None:
    with pytest.raises(UnsupportedPlanError, match=said):
        own(build, **PARTS).pipelined(TOKENS)


def test_a_parameter_of_no_part_is_not_cut() -> None:
    with pytest.raises(UnsupportedPlanError, match="spare"):
        own(Beside, **PARTS).pipelined(TOKENS)


@pytest.mark.parametrize(
    ("field", "apply"),
    [
        ("pipeline", lambda model: model.pipelined(TOKENS)),
        ("tensor", lambda model: model.check_tensor_parallel(2, sequence_parallel=False)),
    ],
)
def test_blocks_that_share_a_parameter_are_not_parted(
    field: str, apply: Callable[[OwnModel], object]
) -> None:
    model = own(Sharing, **PARTS, column=("0",), row=("1",), head_count=2)
    said = f"{field}_parallel_degree: would make two of .*blocks.0.0.weight and blocks.1.0.weight"
    with pytest.raises(UnsupportedPlanError, match=said):
        apply(model)


def test_plain_tensors_of_a_module_get_their_values() -> None:
    model = own(Tabled)
    model.initial_state.restore_buffers(model.module, torch.device("cpu"))
    assert model.module.table.tolist() == [0, 1, 2]
    assert model.module.blocks[0].tables["twice"][0].tolist() == [0, 2, 4]
    assert model.module.weights[0] is model.module.embed.weight


def test_a_lazy_module_is_refused() -> None:
    with pytest.raises(ModelMismatchError, match=r"build_model: .*head\.weight.*nn\.Linear"):
        subject(
            Lazy,
            own=None,
            strategy=Strategy(data_parallel_degree=2, micro_batch_size=1),
            job=Job(global_batch_size=2, sequence_length=4),
            seed=3,
        )


@pytest.mark.filterwarnings("error")
def test_values_that_a_module_loads_are_kept_or_refused() -> None:
    """On the meta device loading does nothing: the module loads once more on the host."""
    plan = {
        "strategy": Strategy(data_parallel_degree=2, micro_batch_size=1),
        "job": Job(global_batch_size=2, sequence_length=4),
        "seed": 3,
    }
    values = Chain().state_dict()

    def build() -> Chain:
        made = Chain()
        made.load_state_dict(values)
        return made

    taken = subject(build, own=Declaration(blocks="blocks"), **plan)
    piece = taken.values.piece("head.weight", torch.Size((16, 8)), (slice(0, 16), slice(0, 8)))
    torch.testing.assert_close(piece, values["head.weight"], rtol=0, atol=0)
    drawn = Declaration(blocks="blocks", initial_value=lambda _, shape, __: torch.zeros(shape))
    with pytest.raises(ModelMismatchError, match=r"what it gives them is lost.*pass weights="):
        subject(build, own=drawn, **plan)


def test_initial_values_are_those_of_the_script_alone() -> None:
    torch.manual_seed(3)
    module = Chain()
    state = InitialState(Chain, seed=3)
    for name, parameter in module.named_parameters():
        half = (slice(0, parameter.shape[0] // 2), *(slice(0, n) for n in parameter.shape[1:]))
        piece = state.piece(name, parameter.shape, half)
        torch.testing.assert_close(piece, parameter.detach()[half], rtol=0, atol=0)


def test_building_again_leaves_the_script_its_random_numbers() -> None:
    torch.manual_seed(11)
    InitialState(Chain, seed=3).frame()
    after = torch.rand(2)
    torch.manual_seed(11)
    torch.testing.assert_close(after, torch.rand(2), rtol=0, atol=0)


def test_a_module_that_says_how_it_begins_is_never_built_whole() -> None:
    """Each rank draws its part, of which the values do not depend on how much else it holds."""
    parameter_bytes = []

    def build() -> Chain:
        made = Chain()
        parameter_bytes.append(sum(p.nbytes for p in made.parameters() if not p.is_meta))
        return made

    def begins(name: str, shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
        spread = 0.1 if name.startswith("blocks") else 1.0
        return spread * torch.randn(shape, generator=generator)

    taken = subject(
        build,
        own=Declaration(blocks="blocks", initial_value=begins, **PARTS),
        strategy=Strategy(data_parallel_degree=2, micro_batch_size=1),
        job=Job(global_batch_size=2, sequence_length=4),
        seed=3,
    )
    shape = torch.Size((600, 300))
    whole = taken.values.piece("head.weight", shape, (slice(0, 600), slice(0, 300)))
    part = taken.values.piece("head.weight", shape, (slice(290, 600), slice(7, 299)))
    torch.testing.assert_close(part, whole[290:, 7:299], rtol=0, atol=0)
    assert whole.std() == pytest.approx(1.0, rel=0.02)
    inner = taken.values.piece("blocks.0.0.weight", shape, (slice(0, 600), slice(0, 300)))
    assert inner.std() == pytest.approx(0.1, rel=0.02)
    taken.declaration.restore_buffers(taken.model, torch.device("cpu"))
    assert set(parameter_bytes) == {0}


class Wide(nn.Module):
    """A block that takes 256 MiB, none of which is ever touched, or half of that."""

    def __init__(self, *, halves: int = 2, is_numpy: bool = True) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Module()])
        size = (halves, 2**25)
        values = torch.from_numpy(np.empty(size, np.float32)) if is_numpy else torch.empty(size)
        self.blocks[0].register_parameter("weight", nn.Parameter(values))


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (Wide, "holds 256 MiB of Wide in host memory, such as blocks.0.weight"),
        (partial(Wide, halves=1), ""),
        (partial(Wide, is_numpy=False), ""),
    ],
    ids=["large", "small", "torch-makes-it"],
)
def test_what_of_a_large_module_ranks_hold_whole_is_said(
    build: Callable[[], nn.Module], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    halves = build().blocks[0].weight.shape[0]
    state = InitialState(build, seed=3)
    state.piece("blocks.0.weight", torch.Size((halves, 2**25)), (slice(0, 1), slice(0, 4)))
    told = capsys.readouterr().err
    assert said in told
    assert ("Declaration(initial_value=...)" in told) is bool(said)


def test_a_model_that_is_built_differently_is_refused() -> None:
    sizes = iter((8, 9))
    state = InitialState(lambda: nn.Linear(next(sizes), 2), seed=0)
    with pytest.raises(ModelMismatchError, match="build the same model"):
        state.piece("weight", torch.Size((2, 9)), (slice(0, 2), slice(0, 9)))


def test_shapes_and_ties_are_read_from_the_module() -> None:
    declared = own(lambda: Chain(tied=True), **PARTS, column=("0",), row=("1",)).declared()
    assert declared.tied_embeddings
    assert declared.block_count == 2
    assert declared.shapes.hidden_size == 8
    assert declared.shapes.vocabulary_size == 16
    assert declared.shapes.ffn_size == 12


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ({"blocks": "layers"}, "declaration.blocks"),
        ({"blocks": "norm"}, "is not a ModuleList"),
        ({"head": "output"}, "declaration.head"),
        ({"column": ("up",)}, "up in block 0"),
    ],
)
def test_a_path_that_leads_nowhere_is_named(declared: dict[str, object], said: str) -> None:
    with pytest.raises(ModelMismatchError, match=said):
        own(Chain, **declared).declared()


def test_blocks_that_need_values_are_followed_without_any() -> None:
    torch.manual_seed(3)
    module = Mixture()
    chain = own(Mixture, **PARTS).pipelined(TOKENS)
    chain.to_empty(device="cpu")
    chain.load_state_dict(module.state_dict())
    tokens = torch.arange(8).view(2, 4)
    assert torch.equal(chain(tokens), module(tokens))


def test_sequence_parallelism_refuses_a_parameter_outside_of_all_parts() -> None:
    """Each rank would train it on its own tokens, and no one sums what they come to."""
    declared = {**PARTS, "column": ("0",), "row": ("1",), "gathered": {}, "head_count": 2}
    own(Chain, **declared).check_tensor_parallel(2, sequence_parallel=True)
    own(Beside, **declared).check_tensor_parallel(2, sequence_parallel=False)
    with pytest.raises(UnsupportedPlanError, match=r"sequence_parallel.*spare.*into a block"):
        own(Beside, **declared).check_tensor_parallel(2, sequence_parallel=True)


def test_sequence_parallelism_refuses_a_parameter_that_is_not_declared() -> None:
    model = own(Chain, **PARTS, column=("0",), row=(), gathered={}, head_count=2, norms=())
    with pytest.raises(UnsupportedPlanError, match="row"):
        model.check_tensor_parallel(2, sequence_parallel=True)
    model = own(Chain, **PARTS, column=("0",), row=("0",), gathered={}, head_count=2)
    with pytest.raises(UnsupportedPlanError, match=r"blocks\.0\.1\.weight"):
        model.check_tensor_parallel(2, sequence_parallel=True)
