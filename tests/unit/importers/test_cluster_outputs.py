"""Outputs of tools -> clusters: what each sample says, and what is refused of broken ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner.errors import DocumentError, InputError
from planner.hardware import cluster_hardware, device_names
from planner.importers.cluster.discovered import device_called, text_of
from planner.importers.cluster.formats import FORMATS, Told, cluster_from_output, format_of
from planner.importers.cluster.nccl_tests import collective_table
from planner.importers.cluster.nccl_topology import node_topology
from planner.importers.cluster.nvidia_smi import topology_matrix
from planner.importers.cluster.slurm import hosts
from planner.importers.cluster.this_machine import discover_here
from planner.importers.clusters import read_cluster

SAMPLES = Path(__file__).parent / "samples"
KINDS = {
    "topo-nvlink.txt": "nvidia-smi",
    "topo-pcie.txt": "nvidia-smi",
    "topo-grace.txt": "nvidia-smi",
    "scontrol-show-node.txt": "slurm",
    "scontrol-show-node-cloud.txt": "slurm",
    "scontrol-show-topology.txt": "slurm",
    "scontrol-show-topology-cloud.txt": "slurm",
    "scontrol-show-topology-block.txt": "slurm",
    "nodes.json": "kubernetes",
    "nodes-gb200.yaml": "kubernetes",
    "nccl-topology.xml": "nccl-topology",
    "topo-bridges.txt": "nvidia-smi",
    "smi-plain.txt": "nvidia-smi",
    "smi-query.csv": "nvidia-smi",
    "rocm-topo.txt": "amd-smi",
    "amd-topology.txt": "amd-smi",
    "skypilot-task.yaml": "skypilot",
    "ray-cluster.yaml": "ray",
    "all_reduce-8.txt": "nccl-tests",
    "all_reduce-8-srun.txt": "nccl-tests",
    "all_reduce-32.txt": "nccl-tests",
    "all_gather-8.json": "nccl-tests",
}
H100 = Told(device="h100-sxm5-80gb", devices_per_node=8)


def sample(name):
    """Return the bytes of a sample."""
    return (SAMPLES / name).read_bytes()


def read(name, told=None):
    """Return what a sample is read as."""
    return cluster_from_output(sample(name), source=name, told=told)


def groups(name, told=None):
    """Return (nodes, devices per node, device) of each group of a sample."""
    found = read(name, told).cluster.node_groups
    return [(g.node_count, g.devices_per_node, g.device) for g in found]


@pytest.mark.parametrize("name", KINDS)
def test_each_output_is_known_by_its_looks(name):
    assert format_of(text_of(sample(name), source=name), source=name) == KINDS[name]


def test_there_is_a_sample_of_every_format():
    assert set(KINDS.values()) == set(FORMATS)


def test_matrix_of_eight_gpus_is_read_with_its_coloured_header_and_nics():
    matrix = topology_matrix(text_of(sample("topo-nvlink.txt"), source="it"), source="it")
    assert (len(matrix.gpus), len(matrix.nics)) == (8, 8)
    assert matrix.links() == {"NV18": 28}
    assert matrix.cells["GPU3"]["NIC3"] == "PIX"
    assert (matrix.numa["GPU3"], matrix.numa["GPU4"]) == ("0", "1")


def test_matrix_gives_as_many_nodes_as_are_told():
    told = Told(device="h100-sxm5-80gb", node_count=4)
    assert groups("topo-nvlink.txt", told) == [(4, 8, "h100-sxm5-80gb")]


def levels(name, told=None):
    """Return (name, devices, GB/s) of each level that a sample states, if it states any."""
    stated = read(name, told).cluster.levels or ()
    return [(s.name, s.device_count, s.bandwidth_bytes_per_second / 1e9) for s in stated]


def test_gpus_without_nvlink_reach_one_another_over_pcie_whatever_the_profile_has():
    """An A100's host copies 24 GB/s, of which 25/54.8 are reached; its network stays 18.25."""
    told = Told(device="a100-sxm4-80gb")
    inner, outer = levels("topo-pcie.txt", told)
    assert inner == ("pcie", 4, pytest.approx(24.0 * 25.0 / 54.8))
    assert outer == ("cluster", None, pytest.approx(18.25))
    notes = read("topo-pcie.txt", told).notes
    assert any("PIX 2, SYS 4" in note for note in notes)
    assert any("assumed to reach 10.9 GB/s" in note for note in notes)


def test_a_matrix_changes_what_a_step_is_planned_with():
    cluster = read("topo-pcie.txt", Told(device="h100-sxm5-80gb")).cluster
    (kind,) = cluster_hardware(cluster).kinds
    assert kind.levels[0].bandwidth_bytes_per_second == pytest.approx(25e9)


def test_bridges_between_pairs_of_cards_are_a_level_of_two():
    """An RTX A6000 has four links of 14.0625 GB/s each way: 0.8 of 56.25."""
    assert levels("topo-bridges.txt", Told(device="rtx-a6000-48gb")) == [
        ("nvlink", 2, pytest.approx(45.0)),
        ("pcie", 4, pytest.approx(12.0)),
        ("cluster", None, pytest.approx(2.3)),
    ]


@pytest.mark.parametrize(
    ("device", "cell", "gb_per_second"),
    [
        ("a100-pcie-80gb", "NV12", 240.0),
        ("h100-nvl-94gb", "NV12", 240.0),
        ("a40-48gb", "NV4", 45.0),
    ],
)
def test_bridges_have_the_rate_of_their_links(device, cell, gb_per_second):
    text = sample("topo-bridges.txt").decode().replace("NV4", cell)
    found = cluster_from_output(text.encode(), source="it", told=Told(device=device))
    inner = found.cluster.levels[0]
    assert inner.device_count == 2
    assert inner.bandwidth_bytes_per_second == pytest.approx(gb_per_second * 1e9)


def test_nvlink_between_all_keeps_the_profiles_own_level():
    assert levels("topo-nvlink.txt", Told(device="h100-sxm5-80gb")) == []


def test_links_in_no_equal_groups_are_told():
    text = sample("topo-bridges.txt").decode().replace("GPU0\t X \tNV4\tSYS", "GPU0\t X \tNV4\tNV4")
    text = text.replace("GPU2\tSYS\tSYS", "GPU2\tNV4\tSYS")
    found = cluster_from_output(text.encode(), source="it", told=Told(device="rtx-a6000-48gb"))
    assert found.cluster.levels is None
    assert any("other GPUs than groups of equal size" in note for note in found.notes)


def test_the_plain_table_names_cards_that_it_cuts_short_by_their_memory():
    assert groups("smi-plain.txt") == [(1, 2, "v100-sxm2-32gb")]


def test_the_plain_table_of_cards_whose_bus_is_cut_short():
    text = sample("smi-plain.txt").decode().replace("Tesla V100-SXM2...", "NVIDIA A100-PCI...")
    text = text.replace("32510MiB", "40960MiB")
    found = cluster_from_output(text.encode(), source="it")
    assert found.cluster.devices == ("a100-pcie-40gb",)


def test_csv_of_a_query_names_the_gpus():
    assert groups("smi-query.csv", Told(node_count=3)) == [(3, 4, "h100-sxm5-80gb")]


@pytest.mark.parametrize(
    ("name", "whole", "cut"),
    [
        ("smi-query.csv", "Disabled", "Enabled"),
        ("smi-plain.txt", "| Processes:   ", "| MIG devices: "),
    ],
)
def test_instances_in_tables_are_refused(name, whole, cut):
    text = sample(name).decode().replace(whole, cut)
    with pytest.raises(InputError, match="cut into instances"):
        cluster_from_output(text.encode(), source="it")


def test_rocm_smis_topology_keeps_the_level_of_xgmi():
    assert groups("rocm-topo.txt", Told(node_count=2)) == [(2, 4, "mi300x-192gb")]
    assert levels("rocm-topo.txt") == []
    assert "GPUs reach one another over XGMI" in read("rocm-topo.txt").notes


def test_rocm_smis_pcie_is_not_xgmi():
    text = sample("rocm-topo.txt").decode().replace("XGMI", "PCIE")
    stated = cluster_from_output(text.encode(), source="it").cluster.levels
    assert [(s.name, s.device_count) for s in stated] == [("pcie", 4), ("cluster", None)]
    assert stated[0].bandwidth_bytes_per_second == pytest.approx(50e9 * 25.0 / 54.8)


def test_amd_smis_topology_and_products():
    assert groups("amd-topology.txt") == [(1, 2, "mi210-64gb")]
    assert levels("amd-topology.txt") == []


def test_an_mi250x_is_a_module_of_two_dies():
    text = sample("rocm-topo.txt").decode().replace("MI300X OAM", "MI250X / MI250")
    found = cluster_from_output(text.encode(), source="it")
    assert [(g.devices_per_node, g.device) for g in found.cluster.node_groups] == [
        (2, "mi250x-128gb")
    ]
    assert any("dies of 2 modules" in note for note in found.notes)


def test_a_table_of_links_that_is_cut_short_is_refused():
    text = sample("rocm-topo.txt").decode().partition("GPU3   XGMI")[0]
    with pytest.raises(DocumentError, match="incomplete table of links"):
        cluster_from_output(text.encode(), source="it")


def test_a_skypilot_tasks_nodes():
    assert groups("skypilot-task.yaml") == [(2, 8, "a100-sxm4-80gb")]
    _, cluster, notes = read_cluster(str(SAMPLES / "skypilot-task.yaml"))
    assert cluster.device_count == 16
    assert any("use_spot" in note for note in notes)


@pytest.mark.parametrize(
    "text",
    [
        "resources: {accelerators: 'H100:8'}\nnum_nodes: 2\n",
        "resources: {accelerators: {H100: 8}, use_spot: false}\nnum_nodes: 2\nrun: true\n",
        "num_nodes: 2\nresources:  # of each node\n  accelerators: H100:8\n",
    ],
)
def test_a_skypilot_task_is_known_however_its_yaml_is_written(text):
    assert cluster_from_output(text.encode(), source="it").cluster.device_count == 16


@pytest.mark.parametrize(
    "resources",
    [
        "accelerators: {H100: 8, A100: 8}",
        "any_of: [{accelerators: H100:8}]",
        "accelerators: [L4, T4]",
    ],
)
def test_a_skypilot_task_that_leaves_the_kind_open_is_refused(resources):
    text = f"resources:\n  {resources}\n"
    with pytest.raises(DocumentError, match="leaves open"):
        cluster_from_output(text.encode(), source="it")


def test_an_instance_and_other_accelerators_beside_it_are_refused():
    text = "resources:\n  instance_type: p4d.24xlarge\n  accelerators: H100:8\n"
    with pytest.raises(DocumentError, match=r"is not what p4d\.24xlarge has") as caught:
        cluster_from_output(text.encode(), source="it")
    assert caught.value.field == "resources.accelerators"
    same = text.replace("H100", "A100")
    assert cluster_from_output(same.encode(), source="it").cluster.device_count == 8


def test_what_a_skypilot_task_says_of_its_cloud_beside_accelerators_is_told():
    text = "resources:\n  infra: aws\n  memory: 512+\n  accelerators: H100:8\n"
    notes = cluster_from_output(text.encode(), source="it").notes
    said = "network and host memory are the device's usual ones, whatever is said of infra, memory"
    assert said in notes


def test_a_skypilot_services_replicas_are_told_to_be_planned_one_by_one():
    text = "resources: {accelerators: 'H100:8'}\nservice: {replicas: 2}\n"
    found = cluster_from_output(text.encode(), source="it")
    assert found.cluster.device_count == 8
    assert any(note.startswith("service: ") for note in found.notes)


RAY = """
max_workers: {bound}
available_node_types:
  one: {{node_config: {{InstanceType: p4d.24xlarge}}, resources: {{GPU: 8}}, max_workers: 4}}
  two: {{node_config: {{InstanceType: p4d.24xlarge}}, resources: {{GPU: 8}}, max_workers: {two}}}
"""


@pytest.mark.parametrize(("bound", "two", "nodes"), [(8, 2, 6), (4, 0, 4), (3, 0, 3)])
def test_rays_bound_of_all_workers_holds_over_those_of_a_type(bound, two, nodes):
    text = RAY.format(bound=bound, two=two)
    found = cluster_from_output(text.encode(), source="it")
    assert found.cluster.device_count == 8 * nodes
    assert any("below one's 4" in note for note in found.notes) is (bound < 4)


def test_rays_types_that_may_have_more_workers_than_the_cluster_are_refused():
    with pytest.raises(DocumentError, match="is less than the 6 workers") as caught:
        cluster_from_output(RAY.format(bound=5, two=2).encode(), source="it")
    assert caught.value.field == "max_workers"


def test_rays_largest_number_of_gpu_nodes_is_planned_for():
    assert groups("ray-cluster.yaml") == [(4, 8, "a100-sxm4-40gb")]
    (group,) = read("ray-cluster.yaml").cluster.node_groups
    # 400 Gb/s over eight devices, of which 0.73 are reached
    assert group.network_bandwidth_bytes_per_second == pytest.approx(0.73 * 400e9 / 64)
    notes = read("ray-cluster.yaml").notes
    assert "gpus has 2 to 4 workers: 4 are planned for" in notes
    assert "head has no GPUs, and is left out" in notes


def test_a_table_of_nccl_tests_under_srun_is_the_table():
    labelled = text_of(sample("all_reduce-8-srun.txt"), source="it")
    assert collective_table(labelled, source="it") == collective_table(
        text_of(sample("all_reduce-8.txt"), source="it"), source="it"
    )


def test_matrix_asks_for_the_device_that_it_does_not_name():
    with pytest.raises(InputError, match="--device"):
        read("topo-nvlink.txt")


def test_slurm_nodes_in_service_are_counted_and_others_said():
    found = read("scontrol-show-node.txt")
    assert groups("scontrol-show-node.txt") == [(4, 8, "h100-sxm5-80gb")]
    assert found.cluster.node_groups[0].host_memory_bytes == 2_063_000 * 2**20
    assert found.notes == (
        "left out, state DRAIN: 1",
        "left out, state DOWN: 1",
        "left out, no GPUs in Gres: 1",
        "h100 is read as h100-sxm5-80gb; `discover --device` names another",
    )


def test_matrix_of_a_grace_node_names_its_processors_without_the_gpus_own_memory():
    """NUMA affinity 0,2-9 is the processor's node, and nodes of the GPU's memory."""
    found = read("topo-grace.txt", Told(device="gb200-192gb", node_count=18))
    assert [(g.node_count, g.devices_per_node) for g in found.cluster.node_groups] == [(18, 4)]
    assert "GPUs on NUMA nodes 0, 1" in found.notes


def slurm_nodes(gres):
    """Return two records, of which the second has whole GPUs of one type."""
    record = "NodeName={} Arch=x86_64 Gres={} RealMemory=2063000 State=IDLE\n"
    return (record.format("n1", gres) + record.format("n2", "gpu:h100:8")).encode()


@pytest.mark.parametrize(
    "gres", ["gpu:nvidia_a100_1g.5gb:56(S:0-1)", "gpu:1g.10gb:7", "gpu:A100_2g.20gb:4"]
)
def test_slurm_nodes_whose_gpus_are_cut_into_instances_are_left_out(gres):
    found = cluster_from_output(slurm_nodes(gres), source="it")
    assert [(g.node_count, g.device) for g in found.cluster.node_groups] == [(1, "h100-sxm5-80gb")]
    assert "left out, GPUs cut into instances (MIG): 1" in found.notes


def test_slurm_node_with_gpus_of_two_types_is_said_to_be_read_by_the_first():
    found = cluster_from_output(slurm_nodes("gpu:l40s:4,gpu:a100:2"), source="it")
    read_groups = {(g.device, g.devices_per_node) for g in found.cluster.node_groups}
    assert read_groups == {("l40s-48gb", 4), ("h100-sxm5-80gb", 8)}
    assert any(note.startswith("GPUs of several types in a node") for note in found.notes)


@pytest.mark.parametrize(
    "changed",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "\ufeff" + text,
        lambda text: text.replace("\t", "    "),
        lambda text: text.replace("GPU3\tNV18", "\x1b[1mGPU3\x1b[0m\tNV18"),
        lambda text: "$ nvidia-smi topo -m\n" + text,
    ],
    ids=["carriage returns", "byte-order mark", "blanks", "colours", "a prompt"],
)
def test_matrix_is_read_as_it_was_pasted(changed):
    text = changed(sample("topo-nvlink.txt").decode())
    found = cluster_from_output(text.encode(), source="it", told=H100)
    assert [(g.node_count, g.devices_per_node) for g in found.cluster.node_groups] == [(1, 8)]


def test_slurm_topology_beside_nodes_is_said():
    both = sample("scontrol-show-node.txt") + sample("scontrol-show-topology.txt")
    notes = cluster_from_output(both, source="it").notes
    assert any(note.startswith("2 leaf switches of 2 nodes") for note in notes)


def test_slurm_topology_alone_needs_to_be_told_of_devices():
    assert groups("scontrol-show-topology.txt", H100) == [(4, 8, "h100-sxm5-80gb")]
    with pytest.raises(InputError, match="--devices-per-node"):
        read("scontrol-show-topology.txt")


def test_slurm_blocks_are_read():
    told = Told(device="gb200-nvl72", devices_per_node=4)
    assert groups("scontrol-show-topology-block.txt", told) == [(36, 4, "gb200-nvl72")]


def test_gres_without_a_type_asks_for_the_device():
    text = sample("scontrol-show-node.txt").replace(b"gpu:h100:8(S:0-1)", b"gpu:8")
    with pytest.raises(InputError, match=r"names no type.*--device"):
        cluster_from_output(text, source="it")
    assert cluster_from_output(text, source="it", told=H100).cluster.device_count == 32


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("tux1", ["tux1"]),
        ("tux[0-2,7],login", ["tux0", "tux1", "tux2", "tux7", "login"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
    ],
)
def test_hostlist_stands_for_its_names(expression, names):
    assert list(hosts(expression, source="it")) == names


@pytest.mark.parametrize("expression", ["n[0-99999999]", "n[0-99999]m[0-99999]", "n[1"])
def test_absurd_hostlist_is_refused(expression):
    with pytest.raises(DocumentError):
        hosts(expression, source="it")


def test_kubernetes_nodes_that_can_be_used_are_counted_and_others_said():
    assert groups("nodes.json") == [(3, 8, "a100-sxm4-80gb")]
    assert set(read("nodes.json").notes) == {
        "left out, cordoned: 1",
        "left out, not ready: 1",
        "left out, GPUs cut into instances (MIG): 1",
        "left out, no GPUs: 1",
    }


def test_kubernetes_yaml_with_cliques_is_read():
    assert groups("nodes-gb200.yaml") == [(18, 4, "gb200-nvl72")]
    assert any("1 NVLink domains of 18 nodes" in note for note in read("nodes-gb200.yaml").notes)


def test_nccl_topology_counts_gpus_links_and_ports():
    node = node_topology(sample("nccl-topology.xml").decode(), source="it")
    assert node.capabilities == ("90",) * 8
    assert node.nvlink_counts == (18,) * 8
    assert node.port_bytes_per_second == (50e9,) * 8


BOMB = (
    '<?xml version="1.0"?><!DOCTYPE system [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]>'
    '<system version="1"><gpu sm="&b;"/></system>'
)


def test_entities_are_refused_before_anything_is_parsed():
    with pytest.raises(DocumentError, match="never read"):
        cluster_from_output(BOMB.encode(), source="it")
    utf16 = BOMB.replace('version="1.0"', 'version="1.0" encoding="utf-16"').encode("utf-16")
    with pytest.raises(DocumentError, match="never read"):
        cluster_from_output(utf16, source="it", form="nccl-topology")


def test_topology_without_gpus_is_refused():
    with pytest.raises(DocumentError, match="no gpu element"):
        node_topology('<system version="1"><cpu numaid="0"/></system>', source="it")


def test_table_of_nccl_tests_names_hosts_product_and_collective():
    table = collective_table(sample("all_reduce-32.txt").decode(), source="it")
    assert (table.rank_count, table.host_count) == (32, 4)
    assert table.product == "NVIDIA H100 80GB HBM3"
    assert {figure.kind for figure in table.figures} == {"all_reduce"}
    first = table.figures[0]
    assert (first.message_bytes, first.seconds) == (2**20, pytest.approx(95.6e-6, abs=1e-6))


def test_a_table_of_nccl_tests_with_wrong_results_is_refused():
    text = sample("all_reduce-8.txt").decode().replace("53.85      0", "53.85      7")
    with pytest.raises(DocumentError, match="wrong results for 1 sizes, the first of 1048576"):
        collective_table(text, source="it")
    fields = json.loads(sample("all_gather-8.json"))
    fields["results"][0]["out_of_place"]["nwrong"] = 1
    with pytest.raises(DocumentError, match="wrong results for 1 sizes"):
        collective_table(json.dumps(fields), source="it")


def test_table_of_nccl_tests_is_read_with_the_tags_of_mpirun():
    plain = sample("all_reduce-8.txt").decode()
    tagged = "".join(f"[1,0]<stdout>:{line}\n" for line in plain.splitlines())
    tables = [
        collective_table(text_of(text.encode(), source="it"), source="it")
        for text in (plain, tagged)
    ]
    assert tables[0] == tables[1]


def test_json_of_nccl_tests_names_the_collective_in_its_arguments():
    table = collective_table(sample("all_gather-8.json").decode(), source="it")
    assert {figure.kind for figure in table.figures} == {"all_gather"}
    assert len(table.figures) == 13


def test_table_of_two_possible_collectives_asks_which():
    text = sample("all_reduce-8.txt").decode().replace("   sum ", "  none ")
    with pytest.raises(InputError, match="--collective"):
        collective_table(text, source="it")
    told = collective_table(text, source="it", collective="alltoall")
    assert told.figures[0].kind == "all_to_all"


@pytest.mark.parametrize(
    ("product", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-sxm5-80gb"),
        ("NVIDIA H100 PCIe", "h100-pcie-80gb"),
        ("NVIDIA-A100-SXM4-40GB", "a100-sxm4-40gb"),
        ("Tesla V100-SXM2-32GB", "v100-sxm2-32gb"),
        ("Tesla V100-SXM2-16GB", "v100-sxm2-16gb"),
        ("NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"),
        ("NVIDIA A10", "a10-24gb"),
        ("NVIDIA A10G", "a10g-24gb"),
        ("NVIDIA A30", "a30-24gb"),
        ("NVIDIA A40", "a40-48gb"),
        ("AMD Instinct MI210", "mi210-64gb"),
        ("AMD Instinct MI300A", "mi300a-128gb"),
        ("NVIDIA L40S", "l40s-48gb"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090-24gb"),
        ("NVIDIA GeForce RTX 4090 D", "rtx-4090d-24gb"),
        ("NVIDIA GeForce RTX 5090", "rtx-5090-32gb"),
        ("NVIDIA RTX A5000", "rtx-a5000-24gb"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-96gb"),
        ("AMD Instinct MI300X", "mi300x-192gb"),
        ("h200", "h200-sxm5-141gb"),
        ("NVIDIA H100 NVL", "h100-nvl-94gb"),
        ("NVIDIA H200 NVL", "h200-nvl-141gb"),
        ("Tesla V100-PCIE-16GB", "v100-pcie-16gb"),
        ("Tesla V100-PCIE-32GB", "v100-pcie-32gb"),
        ("NVIDIA L20", "l20-48gb"),
        ("TPU v4", "tpu-v4-32gb"),
        ("TPU v5 lite", "tpu-v5e-16gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("NVIDIA H20", "h20-sxm-96gb"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada-48gb"),
        ("a100_40g", "a100-sxm4-40gb"),
        ("A100-40", "a100-sxm4-40gb"),
        ("a100_80gb", "a100-sxm4-80gb"),
    ],
)
def test_product_has_a_profile(product, name):
    assert device_called(product, field="it") == name
    assert name in device_names()


@pytest.mark.parametrize(
    "product",
    [
        "NVIDIA A800 PCIe 80GB",
        "NVIDIA Tesla V100S-PCIE-32GB",
        "NVIDIA H20 141GB",
        "NVIDIA GeForce RTX 5090 D",
        "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        "TPU v3",
        "",
    ],
)
def test_product_without_a_profile_is_refused_rather_than_taken_for_its_kin(product):
    with pytest.raises(InputError, match="--device"):
        device_called(product, field="it")


def outcome(content, form):
    """Return what is said against an output, and how many devices it is read as."""
    try:
        found = cluster_from_output(content, source="it", form=form, told=H100)
    except InputError as error:
        return str(error), 0
    return "", found.cluster.device_count


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("keep", [0.0, 0.01, 0.3, 0.7, 0.97])
def test_truncated_output_is_read_or_refused_in_one_line(name, keep):
    content = sample(name)
    said, count = outcome(content[: int(len(content) * keep)], KINDS[name])
    assert bool(said) != bool(count)
    assert "\n" not in said


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\xff\xfe\x80" * 50,
        b"\xff\xfe" + "GPU0\n".encode("utf-16-le"),
        b"{" * 100_000,
        b"<system>" * 5000,
        b"NodeName=a Gres=gpu:h100:8 RealMemory=" + b"9" * 400,
        b'{"kind": "List", "items": [1, null, {"kind": "Pod"}]}',
        b'{"results": [{"size": "x"}], "devices": {}}',
        b"kind: List\nitems: &a [*a]\n",
        b"GPU0 GPU1\nGPU0 X NV18\n",
        b"        8    2   float   sum  -1   nan  inf 1e999 0",
    ],
)
def test_hostile_output_is_one_clear_error(form, content):
    said, count = outcome(content, form)
    readable = form == "slurm" and content.startswith(b"NodeName")
    assert (count == 8) if readable else said
    assert "\n" not in said


def test_cluster_argument_takes_an_output_as_it_is():
    given, cluster, _ = read_cluster(str(SAMPLES / "scontrol-show-node.txt"))
    assert cluster.device_count == 32
    assert isinstance(given, dict)
    assert read_cluster(str(SAMPLES / "nodes.json"))[1].device_count == 24


def test_this_machine_is_a_cluster_that_can_be_planned_for():
    found = discover_here()
    hardware = cluster_hardware(found.cluster)
    assert hardware.device_count >= 1
    assert found.notes
