"""Outputs as people have published them: their facts, typed here, in the form that was shown.

Each names its thread. What differs from the samples is said in the test's name.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from planner.errors import InputError
from planner.importers.cluster.formats import Told, cluster_from_output
from planner.importers.cluster.nccl_tests import collective_table, collective_tables
from planner.importers.cluster.nccl_topology import node_topology
from planner.importers.cluster.nvidia_smi import topology_matrix
from planner.importers.cluster.slurm import cluster_from_slurm

SAMPLES = Path(__file__).parent / "samples"


def pasted(columns: list[str], rows: dict[str, list[str]], affinities: dict[str, str]) -> str:
    """Return a matrix as a thread shows it: columns aligned by spaces, tabs gone."""
    head = " " * 8 + "".join(name.ljust(8) for name in columns) + "CPU Affinity    NUMA Affinity"
    lines = [head + "   GPU NUMA ID"]
    for name, cells in rows.items():
        words = "".join((" X " if cell == "X" else cell).ljust(8) for cell in cells)
        lines.append(name.ljust(8) + words + affinities.get(name, ""))
    return "\n".join([*lines, "", "Legend:", "", "  X    = Self"])


def test_a_matrix_pasted_with_spaces_of_a_node_whose_gpus_sit_on_uneven_numa_nodes():
    """sgl-project/sglang#13973: eight H100, the first three on NUMA node 0, then 1, then 2."""
    gpus = [f"GPU{i}" for i in range(4)]
    columns = [*gpus, "NIC0", "NIC1", "NIC2"]
    rows = {
        "GPU0": ["X", "NV18", "NV18", "NV18", "PIX", "NODE", "SYS"],
        "GPU1": ["NV18", "X", "NV18", "NV18", "NODE", "PIX", "SYS"],
        "GPU2": ["NV18", "NV18", "X", "NV18", "NODE", "NODE", "SYS"],
        "GPU3": ["NV18", "NV18", "NV18", "X", "SYS", "SYS", "PIX"],
        "NIC0": ["PIX", "NODE", "NODE", "SYS", "X", "NODE", "SYS"],
        "NIC1": ["NODE", "PIX", "NODE", "SYS", "NODE", "X", "SYS"],
        "NIC2": ["SYS", "SYS", "SYS", "PIX", "SYS", "SYS", "X"],
    }
    near = dict.fromkeys(gpus[:3], "0-23,96-119     0               N/A")
    text = pasted(columns, rows, {**near, "GPU3": "24-47,120-143   1               N/A"})
    matrix = topology_matrix(text, source="it")
    assert matrix.links() == {"NV18": 6}
    assert [matrix.numa[gpu] for gpu in gpus] == ["0", "0", "0", "1"]
    assert matrix.cells["GPU3"]["NIC2"] == "PIX"


def test_eight_gpus_without_nvlink_each_behind_a_switch_with_its_nic():
    """deepseek-ai/DeepEP#128: every pair of GPUs over SYS, a NIC at PIX of each."""
    gpus, nics = [f"GPU{i}" for i in range(8)], [f"NIC{i}" for i in range(8)]
    rows = {
        name: ["X" if name == other else "PIX" if name[3] == other[3] else "SYS" for other in names]
        for names in [[*gpus, *nics]]
        for name in names
    }
    text = pasted([*gpus, *nics], rows, dict.fromkeys(gpus, "0-55,112-167    0               N/A"))
    found = cluster_from_output(
        text.encode(), source="it", told=Told(device="h100-sxm5-80gb", node_count=2)
    )
    (group,) = found.cluster.node_groups
    assert (group.node_count, group.devices_per_node) == (2, 8)
    assert any("SYS 28" in note for note in found.notes)
    assert any("8 of 8 GPUs with one behind the same PCIe switch" in note for note in found.notes)


def test_a_matrix_of_2017_names_its_nics_by_driver_and_has_no_numa_column():
    """kubernetes/kubernetes#53497: a column mlx4_0, and CPU affinity alone."""
    text = (
        "        GPU0    GPU1    mlx4_0  CPU Affinity\n"
        "GPU0     X      PIX     PHB     0-9,20-29\n"
        "GPU1    PIX      X      PHB     0-9,20-29\n"
        "mlx4_0  PHB     PHB      X\n"
    )
    matrix = topology_matrix(text, source="it")
    assert (matrix.gpus, matrix.nics) == (("GPU0", "GPU1"), ("mlx4_0",))
    assert matrix.links() == {"PIX": 1}


HEAD_OF_2022 = """# nThread 1 nGpus 1 minBytes 1310720000 maxBytes 1310720000 step: 1048576(bytes)
#
# Using devices
#   Rank  0 Pid   1320 on ip-172-31-20-228 device  0 [0x00] Tesla V100-SXM2-16GB
#   Rank  1 Pid   2066 on ip-172-31-22-230 device  0 [0x00] Tesla V100-SXM2-16GB
#
"""


@pytest.mark.parametrize("microseconds", ["1152.6", "1244800"])
def test_a_table_of_before_2022_has_no_root_and_calls_wrong_values_an_error(microseconds):
    """NVIDIA/nccl-tests#107: two V100 over 10 Gb/s. A long time is printed without decimals."""
    row = f"  1310720000     327680000   float     sum   {microseconds}    1.05    1.05  0e+00"
    table = collective_table(
        f"{HEAD_OF_2022}{row}   {microseconds}    1.05    1.05  0e+00\n",
        source="it",
        collective="all_reduce",
    )
    assert (table.rank_count, table.host_count) == (2, 2)
    assert table.product == "Tesla V100-SXM2-16GB"
    assert table.figures[0].seconds == pytest.approx(float(microseconds) * 1e-6)


@pytest.mark.parametrize("label", ["0: ", "[0] ", "[1,0]<stdout>:"])
def test_a_launcher_may_have_labelled_each_line_with_the_rank(label):
    """As `srun --label` and `mpirun --tag-output` do; NVIDIA/nccl#1453 shows the second kind."""
    plain = (SAMPLES / "all_reduce-8.txt").read_text()
    labelled = re.sub("^", label, plain, flags=re.MULTILINE)
    assert collective_table(labelled, source="it") == collective_table(plain, source="it")


def test_a_topology_of_nccl_2_19_names_hosts_families_and_subsystems_too():
    """NVIDIA/nccl#1505: a DGX A100, whose NIC has two ports of 200 and 100 Gb/s."""
    text = """<system version="2">
      <cpu host_hash="0x8393fb66b8b750c5" numaid="3" affinity="ffff" arch="x86_64"
           vendor="AuthenticAMD" familyid="143" modelid="49">
        <pci busid="0000:07:00.0" class="0x030200" vendor="0x10de" device="0x20b0"
             subsystem_vendor="0x10de" subsystem_device="0x134f" link_speed="16.0 GT/s PCIe"
             link_width="16">
          <gpu dev="0" sm="80" rank="0" gdr="1">
            <nvlink target="0000:c4:00.0" count="2" tclass="0x068000"/>
            <nvlink target="0000:c6:00.0" count="2" tclass="0x068000"/>
          </gpu>
        </pci>
        <pci busid="0000:61:00.0" class="0x020700" vendor="0x15b3" device="0x101b"
             link_speed="16.0 GT/s PCIe" link_width="16">
          <nic>
            <net name="mlx5_4" dev="4" speed="200000" port="1" latency="0.000000"
                 guid="0x64774a0003a1420c" maxconn="131072" gdr="1"/>
            <net name="mlx5_5" dev="5" speed="100000" port="2" latency="0.000000"
                 guid="0x64774a0003a1420c" maxconn="131072" gdr="1"/>
          </nic>
        </pci>
      </cpu>
    </system>"""
    node = node_topology(text, source="it")
    assert node.capabilities == ("80",)
    assert node.port_bytes_per_second == (25e9, 12.5e9)


def test_slurm_s_cloud_nodes_are_in_service_and_drained_or_unknown_ones_are_not():
    """A real controller's output: states are several words, joined by plus signs."""
    text = (SAMPLES / "scontrol-show-node-cloud.txt").read_text()
    found = cluster_from_slurm(text, source="it", device=None)
    (group,) = found.cluster.node_groups
    assert (group.node_count, group.devices_per_node, group.device) == (3, 8, "h100-sxm5-80gb")
    assert {"left out, state DRAIN: 1", "left out, state UNKNOWN: 2"} <= set(found.notes)


def test_a_real_topology_is_a_tree_of_seven_nodes():
    text = (SAMPLES / "scontrol-show-topology-cloud.txt").read_text()
    found = cluster_from_slurm(text, source="it", device="h100-sxm5-80gb", devices_per_node=8)
    (group,) = found.cluster.node_groups
    assert group.node_count == 7


def test_names_of_five_letters_touch_where_columns_are_of_eight():
    """vllm-project/vllm#31594: eight B200 whose header ends in NIC11NIC12."""
    columns = ["GPU0", "GPU1", *(f"NIC{i}" for i in range(13))]
    rows = {
        gpu: ["X" if name == gpu else "NV18" if name[0] == "G" else "SYS" for name in columns]
        for gpu in columns[:2]
    }
    text = pasted(columns, rows, {"GPU0": "0-15    0    N/A", "GPU1": "16-31    1    N/A"})
    matrix = topology_matrix(text.replace("NIC11   NIC12", "NIC11NIC12"), source="it")
    assert len(matrix.nics) == 13
    assert (matrix.numa["GPU0"], matrix.numa["GPU1"]) == ("0", "1")


def test_a_gpu_without_nvlink_among_others_with_it_is_said():
    """vllm-project/vllm#16336: eight B200, the third over PCIe alone."""
    gpus = [f"GPU{i}" for i in range(4)]
    rows = {
        a: ["X" if a == b else "NODE" if "GPU2" in (a, b) else "NV18" for b in gpus] for a in gpus
    }
    text = pasted(gpus, rows, dict.fromkeys(gpus, "0-55,112-167    0    N/A"))
    found = cluster_from_output(text.encode(), source="it", told=Told(device="b200-sxm-180gb"))
    assert found.notes[0].startswith("pairs of GPUs by path: NODE 3, NV18 3")


LISTED = "".join(f"GPU {i}: NVIDIA H200 (UUID: GPU-0{i})\n" for i in range(2))
UNDERLINED = "\t[4mGPU0\tGPU1\tCPU Affinity\tNUMA Affinity[0m\n"
MATRIX = "GPU0\t X \tNV18\t0-51\t0\nGPU1\tNV18\t X \t0-51\t0\n"


def test_the_list_of_gpus_names_the_product_of_a_matrix_in_the_same_file():
    found = cluster_from_output((LISTED + UNDERLINED + MATRIX).encode(), source="it")
    (group,) = found.cluster.node_groups
    assert (group.device, group.devices_per_node) == ("h200-sxm5-141gb", 2)
    assert found.notes[0].startswith("all GPUs reach one another over NVLink")


def test_the_list_of_gpus_alone_is_a_node_whose_paths_are_assumed():
    found = cluster_from_output(LISTED.encode(), source="it", told=Told(node_count=4))
    assert found.cluster.device_count == 8
    assert "not stated" in found.notes[0]


def test_instances_in_the_list_of_gpus_are_refused():
    text = LISTED + "  MIG 1g.18gb     Device  0: (UUID: MIG-1)\n"
    with pytest.raises(InputError, match="cut into instances"):
        cluster_from_output(text.encode(), source="it")


def test_rocm_smi_without_a_gpu_is_refused_with_what_to_give_instead():
    text = "===== ROCm System Management Interface =====\n===== End of ROCm SMI Log =====\n"
    with pytest.raises(InputError, match="--showproductname"):
        cluster_from_output(text.encode(), source="it")


def measured(row, *, ranks=2, hosts=2):
    """Return a table of one row, over NVIDIA A40 as NVIDIA/nccl-tests#214 has them."""
    devices = "".join(
        f"#  Rank {i:2d} Group  0 Pid 1478{i} on   gpu{23 + i % hosts} device  0 [0x31] A40\n"
        for i in range(ranks)
    )
    return f"# nThread 1 nGpus 1 minBytes 256\n#\n# Using devices\n{devices}#\n{row}\n"


def test_a_send_over_two_ranks_is_not_taken_for_an_all_reduce():
    """NVIDIA/nccl-tests#214 (its rates are not): a send has nothing in place to check."""
    half = "   {0}   9.87   9.87"
    row = f"  1073741824     268435456     float     sum      -1{half}  0{half}  {{1}}"
    text = measured(row.format("108785", "N/A"))
    with pytest.raises(InputError, match="--collective"):
        collective_tables(text, source="it")
    (table,) = collective_tables(text, source="it", collective="sendrecv")
    assert table.figures[0].kind == "send_recv"
    (table,) = collective_tables(measured(row.format("108785", "0")), source="it")
    assert table.figures[0].kind == "all_reduce"


def test_an_old_table_without_an_operation_has_its_time_where_that_would_stand():
    half = "   1244800    1.05    0.92  0e+00"
    row = f" 1310720000     40960000   float{half}{half}"
    (table,) = collective_tables(measured(row, ranks=8), source="it", collective="all_gather")
    assert table.figures[0].seconds == pytest.approx(1.2448)


def test_each_run_in_a_file_is_a_table_of_its_own():
    row = "  8388608  {}  float  {}  -1  702.6  11.94  {}  0  700.2  11.98  {}  0"
    reduced = measured(row.format(2097152, "sum", 20.90, 20.97), ranks=8)
    gathered = measured(row.format(262144, "none", 10.45, 10.48), ranks=8)
    text = (
        f"# Collective test starting: all_reduce_perf\n{reduced}"
        f"# Collective test starting: all_gather_perf\n{gathered}"
    )
    tables = collective_tables(text, source="it")
    assert [table.figures[0].kind for table in tables] == ["all_reduce", "all_gather"]
    assert [len(table.figures) for table in tables] == [1, 1]


def test_hosts_of_one_nvlink_domain_are_nodes_of_their_own():
    """NCCL tells them apart by host_hash, as NVIDIA/nccl#1505 shows it of one."""
    cpu = (
        '<cpu host_hash="{}" numaid="0" affinity="ff" arch="arm64"><pci busid="0008:01:00.0" '
        'class="0x030200"><gpu dev="0" sm="100" rank="{}" gdr="1"/></pci></cpu>'
    )
    text = f'<system version="2">{cpu.format("0xa", 0)}{cpu.format("0xb", 1)}</system>'
    found = cluster_from_output(text.encode(), source="it", told=Told(device="gb200-nvl72"))
    (group,) = found.cluster.node_groups
    assert (group.node_count, group.devices_per_node) == (2, 1)
    assert "2 hosts in one NVLink domain" in found.notes
