"""A traced module has the parameters, FLOPs and kept bytes that torch itself counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

import executor
from executor.errors import ModelMismatchError
from executor.models.decoder import Decoder
from executor.tracing import Trace, traced
from planner.schema.model import ModelGraph
from planner.workload.model import model_workload
from tests.distributed.plans import small_model

SAMPLES, TOKENS = 2, 24


def _hugging_face(kind: str) -> Callable[[], nn.Module]:
    transformers = pytest.importorskip("transformers", reason="no package transformers")
    shared = {"vocab_size": 96, "use_cache": False, "bos_token_id": 1, "eos_token_id": 2}
    llama_like = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        **shared,
    }
    gpt2 = {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64, **shared}
    fields = gpt2 if kind == "gpt2" else llama_like
    config = transformers.AutoConfig.for_model(kind, **fields)
    return lambda: transformers.AutoModelForCausalLM.from_config(config)


class Residual(nn.Module):
    """A convolutional block; `groups` makes one of another cost."""

    def __init__(self, groups: int = 1) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(8)
        self.convolution = nn.Conv2d(8, 8, 3, padding=1, groups=groups, bias=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the block's output."""
        return images + self.convolution(functional.relu(self.norm(images)))


class Pictures(nn.Module):
    """A home-made classifier: a stem, four blocks of two kinds, up-sampling, an answer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        kinds = (1, 1, 4, 4)
        self.stages = nn.ModuleList(Residual(groups) for groups in kinds)
        self.wide = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.answer = nn.Linear(4, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return scores of ten kinds."""
        hidden = self.stem(images)
        for stage in self.stages:
            hidden = stage(hidden)
        return self.answer(self.wide(hidden).mean((2, 3)))


def _tokens() -> torch.Tensor:
    return torch.randint(0, 96, (SAMPLES, TOKENS), generator=torch.Generator().manual_seed(1))


def _images() -> torch.Tensor:
    return torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(1))


CASES: dict[str, tuple[Callable[[], Callable[[], nn.Module]], Callable[[], torch.Tensor]]] = {
    "decoder": (lambda: lambda: Decoder(small_model()), _tokens),
    "decoder-tied": (lambda: lambda: Decoder(small_model(tied=True)), _tokens),
    "llama": (lambda: _hugging_face("llama"), _tokens),
    "qwen2": (lambda: _hugging_face("qwen2"), _tokens),
    "gpt2": (lambda: _hugging_face("gpt2"), _tokens),
    "pictures": (lambda: Pictures, _images),
}


@pytest.fixture(params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> tuple[nn.Module, torch.Tensor, Trace]:
    """A real module, its real inputs, and its trace."""
    make, inputs = CASES[request.param]
    build, example = make(), inputs()
    return build().train(), example, traced(build, (example,))


def test_parameters_are_the_modules(case: tuple[nn.Module, torch.Tensor, Trace]) -> None:
    module, _, trace = case
    count = sum(parameter.numel() for parameter in module.parameters())
    assert trace.parameter_count == count
    assert model_workload(trace.graph).parameter_count == count


def test_flops_are_what_torch_counts(case: tuple[nn.Module, torch.Tensor, Trace]) -> None:
    module, inputs, trace = case
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    counter = FlopCounterMode(display=False, custom_mapping={flash: _flash_flop})
    with counter, torch.no_grad():
        module(inputs)
    assert trace.forward_flop == counter.get_total_flops()


def test_kept_bytes_are_what_autograd_saves(case: tuple[nn.Module, torch.Tensor, Trace]) -> None:
    module, inputs, trace = case
    saved: dict[int, torch.Tensor] = {}
    module(inputs)  # what it builds once and for all is no activation

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved.setdefault(tensor.untyped_storage().data_ptr(), tensor)
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        output = module(inputs)
    own = {held.untyped_storage().data_ptr() for held in (*module.parameters(), *module.buffers())}
    kept = [tensor for address, tensor in saved.items() if address not in own]
    assert output is not None
    assert trace.saved_bytes == sum(tensor.untyped_storage().nbytes() for tensor in kept)


def test_the_planner_prices_what_was_counted(case: tuple[nn.Module, torch.Tensor, Trace]) -> None:
    """Products and kept bytes of the workload are the trace's; causal attention is its half."""
    _, _, trace = case
    workload = model_workload(ModelGraph.model_validate_json(trace.graph.to_json()))
    layers = [*workload.runs, (workload.embedding, 1), (workload.head.layer, 1)]
    length = trace.graph.maximum_sequence_length
    flop = kept = 0.0
    for layer, count in layers:
        flop += count * sum(gemm.flop_per_token() for gemm in layer.gemms)
        if layer.attention is not None:
            keys = layer.attention.mean_keys(length)
            flop += count * layer.attention.flop_per_token(length) * length / keys
        saved = layer.activations.none
        kept += count * (4 * saved.replicated + 4 * saved.float32)
    assert flop * trace.tokens == pytest.approx(trace.forward_flop, rel=1e-9)
    assert kept * trace.tokens == pytest.approx(trace.saved_bytes, rel=1e-9)


def test_blocks_alike_are_one_run() -> None:
    graph = executor.trace(Pictures, (_images(),))
    assert [run.block_count for run in graph.runs] == [2, 2]
    products = [run.measured.products[0] for run in graph.runs if run.measured is not None]
    assert [(item.inner_size, item.outer_size) for item in products] == [(72, 8), (18, 2)]
    assert graph.maximum_sequence_length == 1
    assert graph.hidden_size == 8 * 8 * 8
    assert graph.vocabulary_size == 10


def test_a_tied_head_is_counted_once() -> None:
    graph = executor.trace(lambda: Decoder(small_model(tied=True)), (_tokens(),))
    assert graph.tied_embeddings
    assert graph.measured_head is not None
    assert graph.measured_head.parameter_count == 32


def test_a_module_without_a_list_is_one_block() -> None:
    graph = executor.trace(lambda: nn.Linear(6, 2), (torch.zeros(4, 6),))
    assert graph.block_count == 1
    assert any("nothing can be cut" in text for text in graph.assumptions)


class Twice(nn.Module):
    """Calls its first layer twice: the list is no chain."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return rows that passed three layers."""
        return self.layers[1](self.layers[0](self.layers[0](rows)))


class Peeking(nn.Linear):
    """Looks at values, which a trace has none of."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the rows, scaled by a value of theirs."""
        return super().forward(rows) * float(rows.max().item())


def test_layers_that_are_used_twice_are_traced_as_one_block() -> None:
    graph = executor.trace(Twice, (torch.zeros(3, 4),))
    assert graph.block_count == 1
    assert graph.runs[0].measured is not None
    assert len(graph.runs[0].measured.products) == 3


@pytest.mark.parametrize(
    ("build", "inputs", "options", "said"),
    [
        (Twice, torch.zeros(3, 4), {"blocks": "layers"}, "not called once each"),
        (Twice, torch.zeros(3, 4), {"blocks": "trunk"}, "is not a ModuleList"),
        (Twice, torch.zeros(3, 5), {}, "fails on fake tensors"),
        (lambda: Peeking(4, 4), torch.zeros(3, 4), {}, "fails on fake tensors"),
        (lambda: 3, torch.zeros(3, 4), {}, "must return a torch.nn.Module"),
        (Twice, torch.zeros(()), {}, "samples in front"),
    ],
)
def test_what_cannot_be_traced_is_said(
    build: Any, inputs: torch.Tensor, options: dict[str, str], said: str
) -> None:
    with pytest.raises(ModelMismatchError, match=said):
        executor.trace(build, (inputs,), **options)


def _flash_flop(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    """Return torch's own count; keys that several queries share are counted for each."""
    heads = query[1]
    wide = [(shape[0], heads, *shape[2:]) for shape in (key, value)]
    return int(sdpa_flop_count(query, *wide))
