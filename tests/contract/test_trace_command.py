"""A user's file becomes a model graph on disk, and the graph a plan."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="no package torch")

from executor import trace_command
from planner.schema.model import ModelGraph

ROOT = Path(__file__).parents[2]
SOURCE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 8)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(4))
        self.head = nn.Linear(8, 50)
    def forward(self, tokens):
        hidden = self.embed(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(hidden)

def traceable():
    return Net, (torch.zeros(2, 16, dtype=torch.long),)

def numberless():
    return 3

def raising():
    raise RuntimeError("no such data")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the user's file."""
    (tmp_path / "net.py").write_text(SOURCE, encoding="utf-8")
    return tmp_path


@pytest.fixture
def _in_the_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The process of the tests there, which forgets the user's module."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    sys.modules.pop("net", None)


def _meshwright(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "planner.cli", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def test_a_traced_file_can_be_planned(folder: Path) -> None:
    done = _meshwright(folder, "trace", "net.py:traceable", "--out", "net.json")
    assert done.returncode == 0, done.stderr
    assert "Net: 1,138 parameters, 4 blocks" in done.stdout
    graph = ModelGraph.read(folder / "net.json")
    assert graph.block_count == 4
    words = ("plan", "net.json", "4xcpu-gloo", "--global-batch-size", "8", "--out", "plan.json")
    planned = _meshwright(folder, *words)
    assert planned.returncode == 0, planned.stderr
    assert _meshwright(folder, "verify", "plan.json").returncode == 0


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("net.py:absent", "has no function absent"),
        ("net.py:numberless", "returned int"),
        ("none.py:traceable", "no such file"),
        ("no.such.module:traceable", "cannot be imported"),
        ("net.py", "names no function"),
    ],
)
@pytest.mark.usefixtures("_in_the_folder")
def test_what_cannot_be_traced_is_one_line(
    capsys: pytest.CaptureFixture[str], reference: str, said: str
) -> None:
    """In this process, what `meshwright trace` becomes."""
    status = trace_command.main([reference, "--json"])
    printed = capsys.readouterr()
    assert status == 1
    assert_is_one_line(printed.out, printed.err, said)


def test_a_function_that_raises_is_one_line_of_meshwright_trace(folder: Path) -> None:
    done = _meshwright(folder, "trace", "net.py:raising", "--json")
    assert done.returncode == 1
    assert_is_one_line(done.stdout, done.stderr, "raised RuntimeError: no such data")


def assert_is_one_line(out: str, err: str, said: str) -> None:
    """Errors are one line for people, and a document for programs."""
    assert said in err
    assert "Traceback" not in err
    assert len(err.splitlines()) == 1
    assert json.loads(out)["error"]["kind"] == "LaunchError"


@pytest.mark.parametrize("words", [(), ("net.py:traceable", "--transformers", "config.json")])
def test_trace_takes_either_a_function_or_a_configuration(folder: Path, words: tuple[str, ...]):
    done = _meshwright(folder, "trace", *words)
    assert done.returncode == 2
    assert "either MODULE:FUNCTION or --transformers CONFIG" in " ".join(done.stderr.split())
