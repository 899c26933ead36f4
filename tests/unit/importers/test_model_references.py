"""Models by name, by path and by fields."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner.errors import DocumentError, InputError
from planner.importers.models import model_from_fields, model_names, read_model
from tests.builders import a_model

CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "vocab_size": 256,
}


def written(path: Path, fields: object) -> Path:
    """Write `fields` as JSON, whatever the suffix: YAML reads it too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(fields))
    return path


def graph_fields(**attention: int) -> dict[str, object]:
    """Return our own document of a tiny model with its attention changed."""
    fields = a_model().model_dump(mode="json")
    fields["runs"][0]["block"]["attention"].update(attention)
    return fields


@pytest.mark.parametrize("name", model_names())
def test_known_name_is_recorded_as_given_and_names_its_graph(name):
    given, graph = read_model(name)
    assert given == name
    assert graph.name == name


def test_names_are_those_of_the_shipped_files():
    shelf = Path(__file__).parents[3] / "profiles" / "models"
    assert list(model_names()) == sorted(path.stem for path in shelf.glob("*.json"))
    assert {"llama-3-8b", "qwen3-30b-a3b", "deepseek-v3", "tiny-llama-cpu"} <= set(model_names())


def test_examples_hold_the_shipped_shapes():
    assert (Path(__file__).parents[3] / "examples" / "models" / "llama-3-8b.json").is_file()


def test_config_json_is_named_for_its_directory_and_recorded_whole(tmp_path):
    given, graph = read_model(str(written(tmp_path / "my-llama" / "config.json", CONFIG)))
    assert given == CONFIG
    assert graph.name == "my-llama"


def test_directory_stands_for_its_config_json(tmp_path):
    written(tmp_path / "my-llama" / "config.json", CONFIG)
    assert read_model(str(tmp_path / "my-llama"))[1].name == "my-llama"


def test_other_file_is_named_for_itself(tmp_path):
    assert read_model(str(written(tmp_path / "other.json", CONFIG)))[1].name == "other"


@pytest.mark.parametrize("suffix", ["json", "yaml", "yml"])
def test_own_document_is_read_as_it_was_written(tmp_path, suffix):
    path = written(tmp_path / f"graph.{suffix}", a_model().model_dump(mode="json"))
    assert read_model(str(path))[1] == a_model()


def test_yaml_config_is_read_like_json(tmp_path):
    path = tmp_path / "it.yaml"
    path.write_text("\n".join(f"{key}: {value}" for key, value in CONFIG.items()))
    assert read_model(str(path))[1] == model_from_fields(CONFIG, name="it")


@pytest.mark.parametrize(
    ("reference", "neighbour"),
    [("llama-3-8", "llama-3-8b"), ("qwen3-8B", "qwen3-8b"), ("llama-3.1-405", "llama-3.1-405b")],
)
def test_unknown_name_is_told_its_neighbours(reference, neighbour):
    with pytest.raises(InputError) as caught:
        read_model(reference)
    assert caught.value.field == "model"
    assert neighbour in caught.value.remedy


@pytest.mark.parametrize(
    "reference", ["", ".", "x" * 5000, "\0", "\0.json", "no/such/dir", "a.json"]
)
def test_reference_that_is_no_model_is_refused(reference):
    with pytest.raises(InputError):
        read_model(reference)


def test_name_longer_than_a_document_allows_is_cut():
    assert model_from_fields(CONFIG, name="n" * 1000).name == "n" * 200


def test_empty_name_becomes_model():
    assert model_from_fields(CONFIG, name="").name == "model"


@pytest.mark.parametrize("fields", [{}, {"hidden_size": 64}])
def test_document_of_neither_kind_is_told_what_to_give(fields):
    with pytest.raises(DocumentError, match=r"model_type: is required.*model graph"):
        model_from_fields(fields, name="it")


def test_own_document_with_a_bad_field_names_it():
    with pytest.raises(DocumentError) as caught:
        model_from_fields(graph_fields(head_count=0), name="it")
    assert caught.value.field.startswith("runs.0.block.attention")


def test_own_document_whose_key_value_heads_divide_nothing_is_refused():
    with pytest.raises(DocumentError) as caught:
        model_from_fields(graph_fields(key_value_head_count=3), name="it")
    assert caught.value.field == "runs.0.block.attention.key_value_head_count"
    assert caught.value.value == 3


def test_own_document_with_absurdly_many_blocks_is_refused():
    fields = a_model().model_dump(mode="json")
    fields["runs"][0]["block_count"] = 10**9
    with pytest.raises(DocumentError, match=r"runs: exceeds blocks 4096"):
        model_from_fields(fields, name="it")


def test_own_document_with_more_chosen_experts_than_experts_is_refused():
    fields = a_model().model_dump(mode="json")
    fields["runs"][0]["block"]["feed_forward"] = {
        "kind": "mixture",
        "expert_count": 4,
        "experts_per_token": 5,
        "expert_ffn_size": 32,
    }
    with pytest.raises(DocumentError, match=r"experts_per_token: exceeds expert_count 4"):
        model_from_fields(fields, name="it")


@pytest.mark.parametrize("name", ["model.pt", "pytorch_model.bin", "model.safetensors"])
def test_weights_and_pickles_are_never_opened(tmp_path, name):
    """The file would tell: whoever unpickled it would raise an error of its own."""
    path = tmp_path / name
    path.write_bytes(b"cbuiltins\nexec\n(S'raise SystemExit(7)'\ntR.")
    with pytest.raises(InputError, match="which are never opened") as caught:
        read_model(str(path))
    assert "config.json" in caught.value.remedy
