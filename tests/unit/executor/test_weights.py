"""Which weights a model takes, which it refuses, and what files may call them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="no package torch")

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import GPT2LMHeadModel, ViTConfig, ViTForImageClassification

from executor.errors import ModelMismatchError, WeightsError
from executor.models.adapters import Adapters
from executor.models.declaration import ModelDeclaration
from executor.models.declared import subject
from executor.models.file_names import ExpertNames, FileNames
from executor.models.first_values import DrawnValues
from executor.models.forward_inputs import ForwardInputs
from executor.models.initial_state import parameters_on_meta
from executor.tensor_source import StateDict, open_weights
from executor.weights import LoadedValues, Weights, loaded_values
from planner.schema.job import Job
from planner.schema.strategy import Strategy
from tests.distributed.families import hugging_face_graph, hugging_face_model
from tests.distributed.plans import cpu_plan

ZEROS = DrawnValues(lambda _name, shape, _generator: torch.zeros(shape), seed=0)
MIXTRAL = ExpertNames(mixture="block_sparse_moe", gate="w1", up="w3", down="w2")


PLAN: dict[str, Any] = {
    "strategy": Strategy(data_parallel_degree=2, micro_batch_size=1),
    "job": Job(global_batch_size=2, sequence_length=4),
    "seed": 3,
}


class Small(nn.Module):
    """Two linears and a buffer."""

    def __init__(self, *, tied: bool = False) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(4, 6, bias=False)
        self.register_buffer("scale", torch.tensor(3.0))
        self.register_buffer("table", torch.arange(5), persistent=False)
        if tied:
            self.second.weight = self.first.weight


def values_of(
    weights: Weights, *, tied: bool = False, file_names: FileNames | None = None
) -> LoadedValues:
    """The values of `weights` for the small model."""
    with torch.device("meta"):
        model = Small(tied=tied)
    declaration = ModelDeclaration.whole(
        lambda *_: None, file_names or FileNames(), ForwardInputs()
    )
    return loaded_values(weights, model, declaration=declaration, drawn=ZEROS)


def tensors(**changes: torch.Tensor | None) -> dict[str, torch.Tensor]:
    """The small model's state dict; names with `__` for dots."""
    given = {name.replace("__", "."): value for name, value in changes.items()}
    known = {**Small().state_dict(), **given}
    return {name: value for name, value in known.items() if value is not None}


def test_parts_are_read_from_the_files_that_an_index_names(tmp_path: Path) -> None:
    state = tensors()
    for place, name in enumerate(state):
        save_file({name: state[name].to(torch.bfloat16)}, tmp_path / f"{place}.safetensors")
    index = {"weight_map": {name: f"{place}.safetensors" for place, name in enumerate(state)}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    values = values_of(Weights(source=tmp_path))
    part = values.piece("first.weight", torch.Size((6, 4)), (slice(2, 5), slice(1, 3)))
    assert torch.equal(part, state["first.weight"].to(torch.bfloat16)[2:5, 1:3])
    assert values.piece("first.bias", torch.Size((6,)), (slice(6, 6),)).shape == (0,)
    assert values.buffer("scale", torch.Size(())) == 3.0
    assert values.buffer("table", torch.Size((5,))) is None


REFUSED: dict[str, tuple[dict[str, torch.Tensor | None], dict[str, tuple[str, ...]], str]] = {
    "missing": ({"second__weight": None}, {}, r"lacks 1 .*: second.weight .*Weights\(source"),
    "missing buffer": ({"scale": None}, {}, "lacks 1 .*: scale"),
    "unexpected": ({"third__weight": torch.ones(1)}, {}, "has 1 .*third.weight .*ignored="),
    "width": (
        {"first__weight": torch.ones(6, 8)},
        {},
        r"shape \[6, 8\] for first.weight, .* needs \[6, 4\].*config.json",
    ),
    "new": ({}, {"new": ("head.*",)}, r"weights.new: matches no tensor .*such as first.bias"),
    "ignored": ({}, {"ignored": ("spare",)}, "weights.ignored"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_weights_are_refused_by_name(case: str) -> None:
    changes, patterns, message = REFUSED[case]
    with pytest.raises(WeightsError, match=message):
        values_of(Weights(source=tensors(**changes), **patterns))


def test_differences_that_are_named_are_taken() -> None:
    """What is new begins as drawn, even where the source has it in another shape."""
    source = tensors(first__weight=torch.ones(9, 9), spare=torch.ones(1))
    values = values_of(Weights(source=source, new=("first.w*",), ignored=("spare",)))
    whole = values.piece("first.weight", torch.Size((6, 4)), (slice(0, 6), slice(0, 4)))
    assert torch.equal(whole, torch.zeros(6, 4))


def test_shared_weights_are_read_once_and_must_not_differ() -> None:
    everything = (slice(0, 6), slice(0, 4))
    alone = values_of(Weights(source=tensors(first__weight=None)), tied=True)
    both = values_of(Weights(source=tensors()), tied=True)
    alone.piece("first.weight", torch.Size((6, 4)), everything)
    with pytest.raises(WeightsError, match=r"other values in second.weight than in first.weight"):
        both.piece("first.weight", torch.Size((6, 4)), everything)


def test_files_of_a_base_model_leave_its_prefix_out() -> None:
    """And tables that are computed may stand beside the weights."""
    source = {f"first.{name}": value for name, value in tensors().items()}
    names = FileNames(base_prefix="", computed=())
    with pytest.raises(WeightsError):
        values_of(Weights(source=source), file_names=names)
    files = {"h.0.weight": (4,), "h.0.attn.masked_bias": ()}
    names = FileNames(base_prefix="transformer.")
    found = names.stored("transformer.h.0.weight", (4,), files)
    assert found is not None
    assert found.names() == ("h.0.weight",)
    assert names.is_computed("h.0.attn.masked_bias")
    assert names.is_computed("layers.0.rotary_emb.inv_freq")
    assert not names.is_computed("h.0.weight")


PACKED, EACH = "layers.0.mlp.experts.", "layers.0.block_sparse_moe.experts."


@pytest.mark.parametrize("is_base", [False, True])
def test_names_of_earlier_releases_are_read_as_transformers_reads_them(
    tmp_path: Path, *, is_base: bool
) -> None:
    """Files of a ViT have its layers under other names than the model has."""
    sizes = {"hidden_size": 8, "intermediate_size": 16, "image_size": 4, "patch_size": 2}
    config = ViTConfig(num_hidden_layers=2, num_attention_heads=2, **sizes)
    whole = ViTForImageClassification(config)
    saved = whole.vit if is_base else whole
    saved.save_pretrained(tmp_path)
    expected = whole.state_dict()
    assert not expected.keys() & {
        name for name in open_weights(tmp_path).shapes() if "0.att" in name
    }
    weights = Weights(source=tmp_path, new=("classifier.*",) if is_base else ())
    found = subject(lambda: ViTForImageClassification(config), own=None, weights=weights, **PLAN)
    for name, tensor in expected.items():
        everything = tuple(slice(0, size) for size in tensor.shape)
        if not (is_base and name.startswith("classifier")):
            assert torch.equal(found.values.piece(name, tensor.shape, everything), tensor), name


@pytest.mark.parametrize("packed", [True, False])
def test_experts_are_read_in_either_form(packed: bool) -> None:
    experts = torch.arange(3 * 2 * 4 * 5.0).view(3, 2, 4, 5)
    files: Mapping[str, torch.Tensor] = (
        {f"{PACKED}gate_up_proj": experts.view(3, 8, 5)}
        if packed
        else dict(FileNames(experts=MIXTRAL).written(f"{PACKED}gate_up_proj", experts))
    )
    source = StateDict(files)
    names = FileNames(experts=MIXTRAL)
    stored = names.stored(f"{PACKED}gate_up_proj", experts.shape, source.shapes())
    assert stored is not None
    ranges = (slice(1, 3), slice(0, 2), slice(1, 4), slice(2, 5))
    assert torch.equal(stored.read(source, ranges), experts[ranges])
    assert {stored.file_shape(experts.shape)} == {*source.shapes().values()}


def test_files_name_each_matrix_of_an_expert() -> None:
    down = torch.ones(2, 5, 4)
    written = dict(FileNames(experts=MIXTRAL).written(f"{PACKED}down_proj", down))
    assert {name: tuple(value.shape) for name, value in written.items()} == {
        f"{EACH}0.w2.weight": (5, 4),
        f"{EACH}1.w2.weight": (5, 4),
    }
    router = dict(FileNames(experts=MIXTRAL).written("layers.0.mlp.gate.weight", down))
    assert list(router) == ["layers.0.block_sparse_moe.gate.weight"]


def test_folders_without_weights_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="no such file or folder"):
        open_weights(tmp_path / "nowhere")
    with pytest.raises(WeightsError, match="it holds nothing"):
        open_weights(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(WeightsError, match=r"pytorch_model.bin.*save_pretrained"):
        open_weights(tmp_path)
    with pytest.raises(WeightsError, match="no safetensors file"):
        open_weights(tmp_path / "pytorch_model.bin")
    (tmp_path / "checkpoint.json").write_text("{}")
    with pytest.raises(WeightsError, match=r"trainer.load"):
        open_weights(tmp_path)


def test_damaged_and_quantized_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"a": torch.ones(64).to(torch.float8_e4m3fn)}, path)
    with pytest.raises(WeightsError, match="F8_E4M3, a quantized format"):
        open_weights(tmp_path)
    save_file({"a": torch.ones(64)}, path)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(WeightsError, match="cannot be read"):
        open_weights(tmp_path)
    path.unlink()
    index = tmp_path / "model.safetensors.index.json"
    for named in ("../model.safetensors", "gone.safetensors"):
        index.write_text(json.dumps({"weight_map": {"a": named}}))
        with pytest.raises(WeightsError, match="cannot be read"):
            open_weights(tmp_path)


def test_a_state_dict_without_values_is_refused() -> None:
    with pytest.raises(WeightsError, match="no tensor with values"):
        StateDict({"a": torch.ones(2, device="meta")})


def test_modules_can_be_built_without_values_of_parameters() -> None:
    with parameters_on_meta():
        model = Small(tied=True)
    assert model.first.weight.is_meta
    assert model.second.weight is model.first.weight
    assert torch.equal(model.table, torch.arange(5))
    assert not nn.Linear(2, 2).weight.is_meta


def test_values_are_never_read_on_the_meta_device_nor_overwritten(tmp_path: Path) -> None:
    """Transformers' own from_pretrained says why it cannot, and the refusal what to write."""
    hugging_face_model("gpt2", tied=True).save_pretrained(tmp_path)
    plan = cpu_plan(model=hugging_face_graph("gpt2", tied=True))
    job, strategy = plan.job.resolved, plan.strategy
    load = partial(GPT2LMHeadModel.from_pretrained, tmp_path)
    with pytest.raises(ModelMismatchError, match=r"from_pretrained .*from_config.*weights=folder"):
        subject(load, own=None, strategy=strategy, job=job, seed=0)

    def loaded() -> nn.Module:
        with torch.device("cpu"):
            return load()

    with pytest.raises(WeightsError, match=r"would overwrite values .* transformer.wte.weight"):
        subject(
            loaded,
            own=None,
            strategy=strategy,
            job=job,
            seed=0,
            weights=Weights(source=tmp_path),
        )


def adapter_folder(folder: Path, **fields: object) -> Path:
    """Write what PEFT writes of adapters without any tensor."""
    folder.mkdir()
    text = json.dumps({"r": 4, "lora_alpha": 16, "use_rslora": False, **fields})
    (folder / "adapter_config.json").write_text(text, encoding="utf-8")
    return folder


def test_adapters_of_a_base_that_is_not_here_are_refused(tmp_path: Path) -> None:
    folder = adapter_folder(tmp_path / "lora", base_model_name_or_path="org/llama")
    with pytest.raises(WeightsError, match=r"names a base model of which no folder is here"):
        Weights(source=folder).opened()


def test_adapters_that_name_no_base_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="cannot be read: KeyError"):
        Weights(source=adapter_folder(tmp_path / "lora")).opened()


def test_adapters_of_another_scale_are_refused(tmp_path: Path) -> None:
    """Their tensors would fit, and make another function."""
    folder = adapter_folder(tmp_path / "lora", base_model_name_or_path=str(tmp_path))
    config = SimpleNamespace(r=4, lora_alpha=32, use_rslora=False)
    built = Adapters(config=config, scalings={}, turned=frozenset())
    found = Weights(source=folder).adapters
    assert found is not None
    with pytest.raises(WeightsError, match="has adapters of lora_alpha 16") as refused:
        found.check_scale(built)
    assert refused.value.field == "peft_config.lora_alpha"
