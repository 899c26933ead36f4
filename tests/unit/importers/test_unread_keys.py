"""Keys of models' and clusters' files that nobody reads are told, and those of no influence not."""

from __future__ import annotations

import pytest
import yaml

from planner.errors import DocumentError
from planner.importers.clusters import read_cluster
from planner.importers.hugging_face.beside import WITHOUT_INFLUENCE, with_unread
from planner.importers.models import model_from_fields, model_names, read_model

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 500,
}
SEEN = {
    "model_type": "llava",
    "text_config": LLAMA,
    "vision_config": {
        "model_type": "clip_vision_model",
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "patch_size": 14,
        "image_size": 28,
    },
}
DIT = {"_class_name": "DiTTransformer2DModel", "_diffusers_version": "0.30", "out_channels": 8}
NAMES = [name for names in WITHOUT_INFLUENCE.values() for name in names.split()]
TASK = {"resources": {"accelerators": "H100:8"}, "num_nodes": 2}
RAY = {
    "head_node_type": "head",
    "available_node_types": {
        "head": {"resources": {"GPU": 8, "accelerator_type:H100": 1}, "max_workers": 0}
    },
}


def told(fields):
    """What a model's file is said not to be read of."""
    said = model_from_fields(fields, name="it").assumptions
    return [line for line in said if line.startswith("not read of")]


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({**LLAMA, "zz_strange": 3}, "zz_strange"),
        ({**LLAMA, "zz_strange": {"inner": 3}}, "zz_strange"),
        ({**SEEN, "text_config": {**LLAMA, "zz_strange": "x"}}, "text_config.zz_strange"),
        (
            {**SEEN, "vision_config": {**SEEN["vision_config"], "zz_strange": True}},
            "vision_config.zz_strange",
        ),
        ({**LLAMA, "sliding_window": 4096}, "sliding_window"),
        ({**DIT, "zz_strange": 3}, "zz_strange"),
    ],
)
def test_a_models_key_that_nothing_reads_is_told_once(fields, path):
    (line,) = told(fields)
    assert line.rpartition(": ")[2] == path


def test_a_models_key_that_is_off_or_whose_switch_is_off_is_not_told():
    off = {"zz_strange": False, "zz_other": None, "zz_third": {}, "zz_fourth": 0.0}
    assert not told({**LLAMA, **off, "num_key_value_heads": 2})
    closed = {"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 1}
    assert not told({**LLAMA, "model_type": "qwen2", "num_key_value_heads": 4, **closed})


@pytest.mark.parametrize(("count", "lines"), [(1, 0), (2, 1)])
def test_a_number_of_ranks_or_layers_is_told_above_one(count, lines):
    assert len(told({**LLAMA, "moe_layer_freq": count})) == lines


def test_how_weights_are_stored_is_told_by_a_line_of_its_own():
    stored = {"quant_method": "mxfp4", "bits": 4}
    said = model_from_fields({**LLAMA, "quantization_config": stored}, name="it").assumptions
    assert len(said) == 1


def test_no_key_without_influence_is_told():
    graph = model_from_fields(LLAMA, name="it")
    for name in NAMES:
        fields = {name.replace("*", "some"): "x"}
        assert with_unread(graph, fields, set(), title="it") is graph, name


def test_a_name_of_no_influence_stands_under_one_reason():
    assert len(NAMES) == len(set(NAMES))


def test_dropout_of_a_configuration_is_said_to_be_the_jobs():
    said = model_from_fields({**LLAMA, "resid_pdrop": 0.1, "hidden_dropout": 0.0}, name="it")
    assert "resid_pdrop: there is dropout where the job's dropout is true" in said.assumptions


@pytest.mark.parametrize("name", model_names())
def test_nothing_is_told_of_the_models_that_ship(name):
    said = read_model(name)[1].assumptions
    assert not [line for line in said if line.startswith("not read of") or "dropout" in line]


def test_a_pattern_of_as_many_layers_as_are_stated_is_asked_for():
    pattern = {"model_type": "nemotron_h", "hybrid_override_pattern": "M-*-"}
    fields = {**LLAMA, **pattern, "num_hidden_layers": 3}
    with pytest.raises(DocumentError, match=r"num_hidden_layers.*, 4"):
        model_from_fields(fields, name="it")


def notes_of(tmp_path, fields):
    """What is said of a cluster's file, written as YAML."""
    path = tmp_path / "given.yaml"
    path.write_text(yaml.safe_dump(fields))
    return [note for note in read_cluster(str(path))[2] if note.startswith("not read of")]


@pytest.mark.parametrize("section", [(), ("resources",)])
def test_a_tasks_key_that_nothing_reads_is_told(tmp_path, section):
    fields = {**TASK, "run": "true", "envs": {"A": "1"}, "name": "it"}
    if section:
        fields["resources"] = {**fields["resources"], "zz_strange": 3, "disk_size": 100}
    else:
        fields["zz_strange"] = 3
    path = ".".join((*section, "zz_strange"))
    assert notes_of(tmp_path, fields) == [f"not read of SkyPilot's task, and not priced: {path}"]


@pytest.mark.parametrize("section", [(), ("head",), ("head", "resources")])
def test_a_ray_clusters_key_that_nothing_reads_is_told(tmp_path, section):
    node = RAY["available_node_types"]["head"]
    fields = {**RAY, "cluster_name": "it", "setup_commands": ["true"]}
    if not section:
        fields["zz_strange"] = 3
    elif section == ("head",):
        fields["available_node_types"] = {"head": {**node, "zz_strange": 3}}
    else:
        more = {"resources": {**node["resources"], "zz_strange": 3, "CPU": 8}}
        fields["available_node_types"] = {"head": {**node, **more}}
    path = ".".join((*(("available_node_types",) if section else ()), *section, "zz_strange"))
    assert notes_of(tmp_path, fields) == [f"not read of Ray's cluster, and not priced: {path}"]


def test_a_pipeline_of_several_tasks_is_refused_by_name(tmp_path):
    path = tmp_path / "pipeline.yaml"
    path.write_text("name: all\n---\nresources: {accelerators: 'H100:8'}\n")
    with pytest.raises(DocumentError, match="another YAML document") as caught:
        read_cluster(str(path))
    assert "one task of a SkyPilot pipeline" in caught.value.remedy
    assert caught.value.value == "line 2"


def ignored_of(tmp_path, fields):
    """What is said to be ignored of a cluster's file, written as YAML."""
    path = tmp_path / "given.yaml"
    path.write_text(yaml.safe_dump(fields))
    return [note for note in read_cluster(str(path))[2] if note.startswith("ignored of")]


def test_sections_of_a_task_that_are_not_looked_at_are_named_with_their_keys(tmp_path):
    resources = {**TASK["resources"], "labels": {"team": "x"}}
    fields = {**TASK, "resources": resources, "envs": {"ZZ_MADE_UP": "1"}}
    assert ignored_of(tmp_path, fields) == [
        (
            "ignored of SkyPilot's task, as no price depends on it: envs (ZZ_MADE_UP), "
            "resources.labels (team)"
        )
    ]
    assert ignored_of(tmp_path, TASK) == []


def test_what_a_ray_clusters_cloud_is_told_is_named_but_for_the_instance(tmp_path):
    config = {"InstanceType": "p5.48xlarge", "ImageId": "ami-1"}
    kind = {"node_config": config, "resources": {}, "max_workers": 2}
    fields = {**RAY, "available_node_types": {"gpu": kind}, "provider": {"type": "aws"}}
    assert ignored_of(tmp_path, fields) == [
        (
            "ignored of Ray's cluster, as no price depends on it: provider (type), "
            "available_node_types.gpu.node_config (ImageId)"
        )
    ]
