"""Slurm's own ways to say the same: lists of nodes, defaults, JSON, types, counts and states."""

from __future__ import annotations

import json

import pytest

from planner.errors import InputError
from planner.importers.cluster.formats import Told, cluster_from_output
from planner.importers.clusters import read_cluster

PRINTED = (
    "NodeName={name} Arch=x86_64 CoresPerSocket=48\n   CPUAlloc=0 CPUTot=192\n   Gres={gres}\n"
    "   OS=Linux 5.15.0-1049 #54-Ubuntu SMP\n   RealMemory=2063000 Sockets=2\n"
    "   State={state} ThreadsPerCore=2\n   CfgTRES=cpu=192,gres/gpu=8\n   Comment={comment}\n\n"
)
CONFIGURED = """ClusterName=it
GresTypes=gpu
NodeName=DEFAULT RealMemory=2000000 \\
  Gres=gpu:h200:8
NodeName=gpu[01-16] CPUs=192 State=UNKNOWN  # the first hall
NodeName=gpu17 CPUs=192 State=DOWN
NodeName=login[1-3] CPUs=32 Gres=
PartitionName=batch Nodes=ALL Default=YES
"""
NODES = {
    "meta": {"plugin": {"data_parser": "data_parser/v0.0.40"}},
    "nodes": [
        {"name": "g1", "gres": "gpu:h200:8(S:0-1)", "state": ["IDLE"], "real_memory": 2063000},
        {"name": "g2", "gres": "gpu:h200:8", "state": ["IDLE", "DRAIN"], "real_memory": 2063000},
        {"name": "login", "gres": "", "state": ["IDLE"], "real_memory": 64000},
    ],
}


def printed(gres="gpu:h200:8", state="IDLE", comment=""):
    """Return a record as `scontrol show node` prints it."""
    return PRINTED.format(name="n1", gres=gres, state=state, comment=comment)


def groups(text, **told):
    """Return nodes, devices a node and device of every group."""
    found = cluster_from_output(text.encode(), source="it", told=Told(**told))
    return [(g.node_count, g.devices_per_node, g.device) for g in found.cluster.node_groups]


@pytest.mark.parametrize(
    ("gres", "count", "device"),
    [
        ("gpu:h200:4(S:0),gpu:h200:4(S:1)", 8, "h200-sxm5-141gb"),
        ("gpu:h200:8(S:0,1)", 8, "h200-sxm5-141gb"),
        ("gpu:h200:no_consume:8", 8, "h200-sxm5-141gb"),
        ("gpu:nvidia_a100-sxm4-40gb:8", 8, "a100-sxm4-40gb"),
        ("gpu:a100_40g:4", 4, "a100-sxm4-40gb"),
        ("shard:h200:64,gpu:h200:8", 8, "h200-sxm5-141gb"),
        ("mps:100,gpu:t4:4", 4, "t4-16gb"),
    ],
)
def test_gres_gives_the_type_and_all_of_its_count(gres, count, device):
    assert groups(printed(gres)) == [(1, count, device)]


def test_a_family_of_several_memories_is_said_to_be_read_as_one_of_them():
    found = cluster_from_output(printed("gpu:a100:8").encode(), source="it")
    assert found.notes == ("a100 is read as a100-sxm4-80gb; `discover --device` names another",)


@pytest.mark.parametrize("state", ["IDLE*", "IDLE+NOT_RESPONDING", "ERROR", "INVAL", "MIXED+DRAIN"])
def test_a_node_that_takes_no_work_is_left_out_and_the_error_says_why(state):
    with pytest.raises(InputError, match="left out, state"):
        groups(printed(state=state))


@pytest.mark.parametrize(
    "state", ["IDLE~", "MIXED+PLANNED", "ALLOCATED", "IDLE+CLOUD+POWERED_DOWN"]
)
def test_a_node_that_takes_work_now_or_once_it_has_started_counts(state):
    assert groups(printed(state=state)) == [(1, 8, "h200-sxm5-141gb")]


def test_what_people_write_into_a_comment_changes_no_field():
    assert groups(printed(comment="was Gres=gpu:t4:1 State=DOWN")) == [(1, 8, "h200-sxm5-141gb")]


def test_records_pasted_with_an_indent_are_read():
    text = "".join(f"    {line}\n" for line in (printed() * 2).splitlines())
    assert groups(text) == [(2, 8, "h200-sxm5-141gb")]


def test_slurm_conf_has_lists_of_nodes_and_defaults_for_them():
    found = cluster_from_output(CONFIGURED.encode(), source="slurm.conf")
    (group,) = found.cluster.node_groups
    assert (group.node_count, group.devices_per_node) == (16, 8)
    assert group.host_memory_bytes == 2_000_000 * 2**20
    assert set(found.notes) == {"left out, state DOWN: 1", "left out, no GPUs in Gres: 3"}


def test_topology_conf_has_comments():
    leaves = "# halls\nSwitchName=s0 Nodes=a[0-5]  # one\nSwitchName=s1 Nodes=b[0-5]\n"
    text = f"{leaves}SwitchName=s2 Switches=s[0-1]\n"
    assert groups(text, device="h200-sxm5-141gb", devices_per_node=8) == [
        (12, 8, "h200-sxm5-141gb")
    ]


def test_json_of_scontrol_is_read_as_its_text():
    found = cluster_from_output(json.dumps(NODES).encode(), source="it")
    assert groups(json.dumps(NODES)) == [(1, 8, "h200-sxm5-141gb")]
    assert found.notes == ("left out, state DRAIN: 1", "left out, no GPUs in Gres: 1")


def test_json_of_older_versions_has_flags_beside_the_state():
    node = {"name": "g", "gres": "gpu:h200:8", "state": "idle", "real_memory": {"number": 9}}
    drained = {**node, "state_flags": ["DRAIN"]}
    assert groups(json.dumps({"nodes": [node, drained]})) == [(1, 8, "h200-sxm5-141gb")]


def test_json_of_scontrol_is_a_cluster_as_it_is(tmp_path):
    path = tmp_path / "nodes.json"
    path.write_text(json.dumps(NODES))
    assert read_cluster(str(path))[1].device_count == 8


@pytest.mark.parametrize("nodes", [[], {}, [1], [{"name": "x"}], [{"name": 3, "state": "idle"}]])
def test_json_without_nodes_is_one_clear_error(nodes):
    with pytest.raises(InputError, match="no list of nodes"):
        groups(json.dumps({"nodes": nodes}))


def test_what_is_left_out_of_an_output_is_told(tmp_path):
    path = tmp_path / "nodes.txt"
    path.write_text(printed() + printed(state="DOWN"))
    assert read_cluster(str(path))[2] == ("left out, state DOWN: 1",)
