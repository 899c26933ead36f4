"""Archives of torch.export: what their operators ask, and archives that are broken or hostile."""

from __future__ import annotations

import json
import os
import pickle
import zipfile

import pytest
import torch
from torch import nn

from executor.tracing import trace
from planner.errors import InputError
from planner.importers.exported_program import graph_from_archive, graph_from_program
from planner.importers.models import read_model

WIDTH, TOKENS, VOCABULARY = 32, 16, 100


class Layer(nn.Module):
    """A small pre-norm block with fused attention."""

    def __init__(self):
        super().__init__()
        self.norm, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mix, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, rows):
        """Return the rows after attention and feed-forward."""
        heads = self.mix(self.norm(rows)).unflatten(-1, (3, 4, WIDTH // 4)).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        rows = rows + self.out(mixed.transpose(1, 2).flatten(2))
        return rows + self.down(nn.functional.gelu(self.up(self.norm2(rows))))


class Model(nn.Module):
    """Embedding, three layers, head."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(3))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        """Return the logits."""
        rows = self.embed(tokens)
        for layer in self.layers:
            rows = layer(rows)
        return self.head(rows)


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """A model exported and saved."""
    path = tmp_path_factory.mktemp("exported") / "small.pt2"
    program = torch.export.export(Model(), (torch.zeros(2, TOKENS, dtype=torch.long),))
    torch.export.save(program, path)
    return path


@pytest.fixture(scope="module")
def traced():
    """The same model as the executor records it."""
    return trace(Model, (torch.zeros(2, TOKENS, dtype=torch.long),))


def test_equal_layers_are_one_run_with_all_parameters(archive):
    graph = graph_from_archive(archive, name="small")
    (run,) = graph.runs
    parameters = sum(p.numel() for p in Layer().parameters())
    assert (run.block_count, run.measured.parameter_count) == (3, parameters)
    ends = graph.measured_embedding.parameter_count, graph.measured_head.parameter_count
    assert ends == (VOCABULARY * WIDTH, VOCABULARY * (WIDTH + 1))
    assert (graph.hidden_size, graph.vocabulary_size) == (WIDTH, VOCABULARY)
    assert graph.maximum_sequence_length == TOKENS


def test_products_and_attention_are_those_that_a_trace_finds(archive, traced):
    mine = graph_from_archive(archive, name="small").runs[0].measured
    theirs = traced.runs[0].measured
    assert mine.products == theirs.products
    assert mine.attention == theirs.attention


def test_what_is_kept_is_near_what_autograd_keeps(archive, traced):
    mine = graph_from_archive(archive, name="small").runs[0].measured.saved
    theirs = traced.runs[0].measured.saved
    assert mine.elements_per_token == pytest.approx(theirs.elements_per_token, rel=0.1)


def test_archive_is_a_model_that_commands_take(archive):
    given, graph = read_model(str(archive))
    assert graph.is_measured
    assert given["architecture"] == "exported"
    assert any("meshwright trace" in said for said in graph.assumptions)


def refused(path):
    """Return the one line that an archive is refused with."""
    with pytest.raises(InputError) as caught:
        read_model(str(path))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_missing_truncated_and_other_files_are_refused(archive, tmp_path):
    whole = archive.read_bytes()
    for index, content in enumerate([b"", b"no archive", whole[: len(whole) // 2]]):
        path = tmp_path / f"{index}.pt2"
        path.write_bytes(content)
        assert "not a readable archive" in refused(path)
    assert "no such file" in refused(tmp_path / "missing.pt2")


def test_bomb_is_read_no_further_than_the_limit(tmp_path):
    path = tmp_path / "bomb.pt2"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("m/models/model.json", b" " * (80 * 2**20))
    assert path.stat().st_size < 2**20
    assert "larger than" in refused(path)


def test_only_the_program_s_own_path_is_opened_and_nothing_is_unpickled(tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "sprung"),)

    path = tmp_path / "trap.pt2"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("../../models/model.json", "{}")
        file.writestr("m/data/sample_inputs/model.pt", pickle.dumps(Trap()))
    assert "holds 0 programs" in refused(path)
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("m/models/model.json", "{}")
    assert "not a program" in refused(path)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("change", ["nodes", "tensor_values"])
@pytest.mark.parametrize("value", [None, [], {}, [1], {"a": 1}, "x"])
def test_program_with_other_things_in_it_is_refused(archive, change, value):
    with zipfile.ZipFile(archive) as file:
        (name,) = (n for n in file.namelist() if n.endswith("models/model.json"))
        program = json.loads(file.read(name))
    program["graph_module"]["graph"][change] = value
    with pytest.raises(InputError):
        graph_from_program(program, name="it", source="it")
