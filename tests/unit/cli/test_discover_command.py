"""`meshwright discover`: files that plans take, networks fitted to tables, one-line errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner.cli.app import invoke
from planner.cli.collective_fit import fitted_cluster
from planner.cost.collectives import all_reduce_seconds
from planner.hardware import cluster_hardware
from planner.importers.cluster.nccl_tests import CollectiveTable, collective_table
from planner.importers.clusters import read_cluster

SAMPLES = Path(__file__).parents[1] / "importers" / "samples"


def table(name) -> CollectiveTable:
    """Return what a sample of nccl-tests holds."""
    return collective_table((SAMPLES / name).read_text(), source=name)


def levels(*names):
    """Return the network that is fitted to samples."""
    cluster, error = fitted_cluster(
        [table(name) for name in names], name="it", device="h100-sxm5-80gb", source="it"
    )
    assert error < 0.1
    return cluster_hardware(cluster).kinds[0].levels


@pytest.mark.parametrize("names", [["all_reduce-8.txt"], ["all_reduce-8.txt", "all_reduce-32.txt"]])
def test_fitted_network_takes_as_long_as_was_measured(names):
    """The sample's rows at 1 MiB and 1 GiB: 30 us and 450 GB/s of bus bandwidth, as it is made."""
    found = levels(*names)
    seconds = all_reduce_seconds([2**20, 2**30], rank_count=8, stride=1, levels=found)
    assert seconds[0] == pytest.approx(34.1e-6, rel=0.15)
    assert seconds[1] == pytest.approx(4.206e-3, rel=0.15)


def test_network_between_nodes_is_fitted_with_that_within_them_kept():
    found = levels("all_reduce-8.txt", "all_reduce-32.txt")
    seconds = all_reduce_seconds([2**30], rank_count=32, stride=1, levels=found)
    assert seconds[0] == pytest.approx(5.87e-3, rel=0.15)


def test_written_file_is_a_cluster_that_is_read_again(tmp_path, capsys):
    out = tmp_path / "cluster.json"
    source = str(SAMPLES / "nodes.json")
    assert invoke(["discover", "--from", source, "--out", str(out)]) == 0
    assert "3 nodes of 8 x a100-sxm4-80gb" in capsys.readouterr().out
    assert read_cluster(str(out))[1].device_count == 24


def test_json_on_stdout_is_the_cluster(tmp_path, capsys):
    arguments = ["discover", "--json", "--out", str(tmp_path / "c.json")]
    assert invoke([*arguments, "--from", str(SAMPLES / "all_reduce-8.txt")]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert list(printed["device_profiles"]) == ["h100-sxm5-80gb-measured"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--from", "missing.txt"], "missing.txt: no such file"),
        (["--from", str(SAMPLES / "topo-nvlink.txt")], "--device"),
        (["--from", str(SAMPLES / "topo-nvlink.txt"), "--device", "h101"], "no profile is known"),
        (
            ["--from", str(SAMPLES / "nodes.json"), "--format", "toml"],
            "is not a format that can be read",
        ),
        (["--from", __file__], "is not an output that is known"),
        (["--from", str(SAMPLES / "nodes.json")] * 2, "may be given once"),
    ],
)
def test_what_cannot_be_read_is_told_in_one_line(arguments, said, tmp_path, capsys):
    assert invoke(["discover", *arguments, "--out", str(tmp_path / "c.json")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert not (tmp_path / "c.json").exists()


def test_device_may_be_told_by_its_product(tmp_path, capsys):
    out = str(tmp_path / "c.json")
    source = str(SAMPLES / "topo-nvlink.txt")
    assert invoke(["discover", "--from", source, "--device", "H100", "--out", out]) == 0
    printed = capsys.readouterr().out
    assert "1 node of 8 x h100-sxm5-80gb" in printed
    assert "h100 was taken as h100-sxm5-80gb; cards are" in printed


def test_an_ambiguous_device_is_refused_with_those_that_it_may_be(tmp_path, capsys):
    out = str(tmp_path / "c.json")
    source = str(SAMPLES / "topo-nvlink.txt")
    assert invoke(["discover", "--from", source, "--device", "a100", "--out", out]) == 1
    assert "a100-sxm4-40gb or a100-sxm4-80gb" in capsys.readouterr().err
