"""What a script does to a model of transformers is kept, or refused where it would be lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="no package torch")

import torch
from torch import nn

from executor.errors import ModelMismatchError
from executor.models.declared import Subject, subject
from executor.models.own import Declaration
from executor.optimizers import made_by
from executor.weights import Weights
from planner.errors import InputError
from planner.schema.job import Job
from planner.schema.strategy import Strategy
from tests.distributed.families import hugging_face_model

HEAD = "lm_head.weight"
NORM = "model.layers.0.input_layernorm.weight"
PLAN: dict[str, Any] = {
    "strategy": Strategy(data_parallel_degree=2, micro_batch_size=1),
    "job": Job(global_batch_size=2, sequence_length=4),
    "seed": 3,
}
PLAIN = nn.Parameter(torch.ones(2))


def llama() -> Any:
    """A small Llama as a script builds it."""
    return hugging_face_model("llama", tied=False)


def taken(change: Callable[[Any], None], weights: Weights | None = None) -> Subject:
    """What is trained of the Llama that a script has built and changed."""

    def build() -> nn.Module:
        model: nn.Module = llama()
        change(model)
        return model

    return subject(build, own=None, weights=weights, **PLAN)


def in_place(model: Any) -> None:
    """Write to a parameter."""
    nn.init.zeros_(model.lm_head.weight)


def by_what_torch_passes_over(model: Any) -> None:
    """Draw by a function that does nothing on the meta device."""
    nn.init.trunc_normal_(model.lm_head.weight, std=0.02)


def through_data(model: Any) -> None:
    """Write to what a parameter shares its memory with."""
    model.lm_head.weight.data.mul_(0.5)


def by_another_parameter(model: Any) -> None:
    """Put a parameter in place of another."""
    model.lm_head.weight = nn.Parameter(torch.zeros(256, 32))


def by_another_layer(model: Any) -> None:
    """Put a layer in place of another, which draws its values as torch's do."""
    model.lm_head = nn.Linear(32, 256, bias=False)


def by_other_norms(model: Any) -> None:
    """Put torch's norms in place of transformers', which begin alike."""
    for layer in model.model.layers:
        layer.input_layernorm = nn.RMSNorm(32, eps=1e-6)


def by_its_mean(model: Any) -> None:
    """Give values that depend on others."""
    model.lm_head.bias = nn.Parameter(torch.full((256,), model.lm_head.weight.mean().item()))


@pytest.mark.parametrize(
    "change",
    [
        in_place,
        by_what_torch_passes_over,
        through_data,
        by_another_parameter,
        by_another_layer,
        by_its_mean,
    ],
)
def test_values_given_on_the_meta_device_are_refused(change: Callable[[Any], None]) -> None:
    with pytest.raises(ModelMismatchError, match=r"is lost.*torch\.device\(\"cpu\"\)"):
        taken(change)


def test_values_that_weights_bring_may_be_written_before() -> None:
    torch.manual_seed(0)
    values = llama().state_dict()
    kept = taken(in_place, Weights(source=values)).values
    everything = (slice(0, 256), slice(0, 32))
    piece = kept.piece(HEAD, torch.Size((256, 32)), everything)
    torch.testing.assert_close(piece, values[HEAD], rtol=0, atol=0)
    with pytest.raises(ModelMismatchError, match=f"got values given to {HEAD}"):
        taken(in_place, Weights(source=values, new=(HEAD,)))


def test_norms_of_torch_begin_as_those_in_whose_place_they_are() -> None:
    values = taken(by_other_norms).values
    piece = values.piece(NORM, torch.Size((32,)), (slice(0, 32),))
    torch.testing.assert_close(piece, nn.RMSNorm(32).weight.detach(), rtol=0, atol=0)
    with pytest.raises(ModelMismatchError, match=f"got values given to {NORM}"):
        taken(lambda model: nn.init.zeros_(model.model.layers[0].input_layernorm.weight))


def test_values_given_on_the_host_are_kept() -> None:
    def on_host(model: Any) -> None:
        with torch.device("cpu"):
            model.lm_head.weight = nn.Parameter(torch.full((256, 32), 0.25))

    values = taken(on_host).values
    piece = values.piece(HEAD, torch.Size((256, 32)), (slice(3, 5), slice(0, 32)))
    torch.testing.assert_close(piece, torch.full((2, 32), 0.25), rtol=0, atol=0)


def test_other_formats_and_what_is_frozen_give_no_values() -> None:
    model = taken(lambda model: model.to(torch.bfloat16).lm_head.requires_grad_(False)).model
    trained = {name for name, item in model.named_parameters() if item.requires_grad}
    assert HEAD not in trained
    assert "model.norm.weight" in trained


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        (lambda model: model.register_forward_hook(print), "a hook"),
        (lambda model: model.model.register_forward_pre_hook(print), "a hook of model"),
        (lambda model: setattr(model, "forward", print), "forward"),
        (lambda model: setattr(model, "scores", nn.Linear(32, 1)), "scores"),
        (lambda model: model.register_buffer("step", torch.zeros(1)), "step"),
        (
            lambda model: setattr(model.model, "table", nn.Parameter(torch.ones(2))),
            "table of model",
        ),
    ],
)
def test_what_the_executor_would_pass_over_is_refused(
    change: Callable[[Any], None], lost: str
) -> None:
    with pytest.raises(ModelMismatchError, match=rf"build_model: .*would be lost.*got {lost}\)"):
        taken(change)


def test_hooks_of_layers_stay() -> None:
    model = taken(lambda model: model.model.layers[1].register_forward_hook(print)).model
    assert len(model.get_submodule("model.layers.1")._forward_hooks) == 1


def _own(**settings: Any) -> nn.Module:
    """A module of a script with an embedding of such settings."""
    return nn.Sequential(nn.Embedding(16, 8, **settings), nn.Linear(8, 16))


def compiled() -> nn.Module:
    """A module behind torch's compiler."""
    return torch.compile(_own(), backend="eager")  # type: ignore[return-value]


def hooked() -> nn.Module:
    """A module that changes the gradient of its embedding."""
    module = _own()
    next(module.parameters()).register_hook(lambda gradient: gradient * 0.5)
    return module


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (compiled, r"return the module itself"),
        (lambda: nn.DataParallel(_own()), r"return the module itself"),
        (hooked, r"a hook of its gradient.*got 0\.weight"),
        (lambda: _own(max_norm=1.0), r"build_model 0\.max_norm: .*on that rank alone"),
        (lambda: _own(sparse=True), r"build_model 0\.sparse: .*do not average"),
        (lambda: _own(scale_grad_by_freq=True), r"0\.scale_grad_by_freq: .*not of the batch"),
    ],
)
def test_what_layouts_would_compute_otherwise_is_refused(
    build: Callable[[], nn.Module], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        subject(build, own=None, **PLAN)


def test_values_of_a_module_are_not_drawn_anew() -> None:
    module = _own()
    drawn = Declaration(blocks="", initial_value=lambda _, shape, __: torch.zeros(shape))
    with pytest.raises(ModelMismatchError, match=r"declaration\.initial_value: would draw anew"):
        subject(lambda: module, own=drawn, **PLAN)


def test_a_module_that_the_script_has_already_keeps_its_values_and_marks() -> None:
    module = nn.Module()
    module.blocks = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
    module.blocks[0].weight.decays = True  # type: ignore[union-attr]
    taken = subject(lambda: module, own=Declaration(blocks="blocks"), **PLAN)
    split = taken.model.get_parameter("blocks.0.weight")
    assert split.is_meta
    assert split.decays  # type: ignore[attr-defined]
    piece = taken.values.piece("blocks.0.weight", torch.Size((8, 8)), (slice(2, 4), slice(0, 8)))
    assert torch.equal(piece, module.blocks[0].weight[2:4])  # type: ignore[union-attr,index]


def test_an_optimizer_that_needs_a_closure_is_refused() -> None:
    parameter = nn.Parameter(torch.ones(2))
    with pytest.raises(ModelMismatchError, match=r"optimizer_function: .*got LBFGS"):
        made_by(torch.optim.LBFGS, ["weight"])([parameter])
