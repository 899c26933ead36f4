"""Parameters begin as the script alone begins them, though few lie in memory at a time."""

from __future__ import annotations

import copy
import random
import threading
from collections.abc import Callable

import pytest

pytest.importorskip("torch", reason="no package torch")

import numpy as np
import torch
from torch import nn
from torch.nn import init
from torch.nn.utils import parametrizations

from executor.models.initial_state import InitialState

N = 160  # a matrix of that width is large enough to be let go of
NONE: frozenset[str] = frozenset()


def linear() -> nn.Linear:
    return nn.Linear(N, N)


class Applied(nn.Module):
    """Draws twice, as libraries do, and then changes parts by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(linear() for _ in range(4))
        self.embed = nn.Embedding(300, N, padding_idx=3)
        self.apply(self.begin)
        first, second, third, fourth = (layer.weight for layer in self.layers)
        for depth, weight in enumerate((first, second), 1):
            weight.data.mul_(depth**-0.5)
        with torch.no_grad():
            self.embed.weight[7:9].fill_(2.0)
            first[:, ::2].neg_()
            second.copy_(third.T)
            fourth.add_(fourth.T.clone())

    def begin(self, module: nn.Module) -> None:
        """Draw anew."""
        if isinstance(module, nn.Linear):
            init.normal_(module.weight, std=0.02)
            init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            init.trunc_normal_(module.weight, std=random.Random(4).random())  # noqa: S311


class Copied(nn.Module):
    """Has copies of modules, of which only one was drawn, and of values."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(N, 4, 200, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.again = copy.deepcopy(self.encoder.layers[1])
        self.register_buffer("average", self.again.linear1.weight.detach().clone())
        self.plain = [2 * self.again.linear1.weight.detach()]
        self.tied = nn.Linear(N, 200)
        self.tied.weight = self.again.linear1.weight


class Computed(nn.Module):
    """Draws from generators, and computes: bases, views, other formats, parametrizations."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.basis = init.orthogonal_(nn.Parameter(torch.empty(N, N)), generator=generator)
        self.own = nn.Parameter(torch.rand(N, N, generator=generator))
        self.view = nn.Parameter(torch.randn(N, 2 * N)[:, :N])
        self.double = linear().double()
        self.complex = nn.Parameter(torch.randn(N, N, dtype=torch.complex64))
        self.other = linear()
        self.other.weight.data = torch.randn(N, N) * self.own.std()
        self.norm = parametrizations.weight_norm(linear())
        self.turned = parametrizations.orthogonal(linear())
        with pytest.raises(RuntimeError, match="std"):
            self.other.weight.data.normal_(std=-1.0)


class FromElsewhere(nn.Module):
    """Has values that numpy gives, in three ways, and one that torch draws."""

    def __init__(self) -> None:
        super().__init__()
        values = torch.empty(N, N)
        seen = values.numpy()
        self.seen = nn.Parameter(values)
        self.drawn = linear()
        seen[:] = np.random.RandomState(0).rand(N, N)
        self.given = nn.Parameter(torch.from_numpy(np.random.RandomState(1).rand(N, N)))
        self.layer = linear()
        self.layer.weight.detach().numpy()[0] = 3.0


class Threaded(nn.Module):
    """Has another thread write to what torch has drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = linear(), linear()
        thread = threading.Thread(target=lambda: self.first.weight.data.fill_(1.0))
        thread.start()
        thread.join()
        self.third = linear()


class Looped(nn.Module):
    """Draws row by row, and several at once."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.last = linear(), linear()
        with torch.no_grad():
            for row in self.rows.weight:
                row.normal_()
        self.pair = nn.ParameterList(nn.Parameter(torch.randn(N, N)) for _ in range(2))
        torch._foreach_mul_([item.data for item in self.pair], 2.0)


@pytest.mark.parametrize(
    ("build", "held"),
    [
        (Applied, NONE),
        (Copied, NONE),
        (Computed, NONE),
        (FromElsewhere, {"seen", "given", "layer.weight"}),
        (Threaded, {"first.weight", "second.weight"}),
        (Looped, {"rows.weight", "pair.0", "pair.1"}),
    ],
)
@pytest.mark.parametrize("budget_bytes", [0, 3 * 4 * N**2])
def test_parameters_begin_as_the_script_alone_begins_them(
    build: Callable[[], nn.Module], held: set[str], budget_bytes: int
) -> None:
    torch.manual_seed(3)
    alone = build()
    state = InitialState(build, seed=3, budget_bytes=budget_bytes)
    frame = state.frame()
    large = {name for name, item in alone.named_parameters() if item.nbytes > 2**16}
    awake = {
        name: item.untyped_storage().nbytes()
        for name, item in state._parameters.items()
        if name in large - held
    }
    assert sum(awake.values()) <= budget_bytes
    for name, item in alone.named_parameters():
        part = tuple(slice(size // 3, size) for size in item.shape)
        piece = state.piece(name, item.shape, part)
        torch.testing.assert_close(piece, item.detach()[part], rtol=0, atol=0)
    recorded = state._recorded
    assert recorded is not None
    named = dict(alone.named_parameters()).keys() & large
    assert recorded.held({name: state._parameters[name] for name in named}).keys() == held
    for name, buffer in alone.named_buffers():
        torch.testing.assert_close(dict(frame.named_buffers())[name], buffer, rtol=0, atol=0)


def test_plain_tensors_that_are_made_of_parameters_have_their_values() -> None:
    torch.manual_seed(3)
    alone = Copied()
    frame = InitialState(Copied, seed=3, budget_bytes=0).frame()
    torch.testing.assert_close(frame.plain[0], alone.plain[0], rtol=0, atol=0)
    assert frame.tied.weight is frame.again.linear1.weight


_counts = iter(range(100))


@torch.library.custom_op("meshwright_tests::counted", mutates_args=())
def counted(size: int) -> torch.Tensor:
    """Return another number each time."""
    return torch.full((size, size), float(next(_counts)))


class Counted(nn.Module):
    """Has a parameter that no two builds give alike."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(counted(N))
        self.layer = linear()


def test_what_is_not_drawn_alike_twice_is_held_whole() -> None:
    state = InitialState(Counted, seed=3, budget_bytes=0)
    shape = torch.Size((N, N))
    first = state.piece("weight", shape, (slice(0, N), slice(0, N)))
    again = state.piece("weight", shape, (slice(0, N), slice(0, N)))
    torch.testing.assert_close(first, again, rtol=0, atol=0)
    assert first.unique().numel() == 1


def test_first_rows_are_told_without_drawing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are compared over ranks, before anything is asked for."""
    torch.manual_seed(3)
    alone = linear()
    state = InitialState(linear, seed=3, budget_bytes=0)
    state.frame()
    monkeypatch.delattr("executor.models.recorded_storages._content")
    piece = state.piece("weight", alone.weight.shape, (slice(0, 1), slice(0, 64)))
    torch.testing.assert_close(piece, alone.weight.detach()[:1, :64], rtol=0, atol=0)
