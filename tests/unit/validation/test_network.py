"""Network: rates between nodes as rows word them."""

from __future__ import annotations

import pytest

from planner.validation.network import network_bytes_per_second, port_bytes_per_second


@pytest.mark.parametrize(
    ("words", "line_rate"),
    [
        ("NVLink; 8x200 Gb/s HDR IB per node (Selene)", 25e9),
        ("NVLink intra-node; 1600 Gbps/node RoCE", 25e9),
        ("NVLink intra-node; RDMA 400 Gb/s per GPU", 50e9),
        ("NVLink; 400 Gb/s CX-7 per GPU", 50e9),
        ("4x200 Gb/s InfiniBand HDR per 8-GPU node (800 Gb/s per node in validation)", 12.5e9),
        ("PCIe per node, 50 Gb/s Ethernet inter-node", 0.78125e9),
        ("NVLink intra-node; Omni-Path inter-node (Jean Zay)", 6.25e9),
    ],
)
def test_words_on_the_network_state_what_a_device_can_send(words: str, line_rate: float) -> None:
    assert network_bytes_per_second(words, 8) == pytest.approx(0.73 * line_rate)


@pytest.mark.parametrize("words", ["", "NVLink, single node", "NVL72 NVLink domain"])
def test_other_words_leave_the_profiles_network(words: str) -> None:
    assert network_bytes_per_second(words, 8) is None


def test_a_site_is_known_by_its_nodes_too() -> None:
    assert network_bytes_per_second("Jean Zay", 4) is None


@pytest.mark.parametrize(
    ("words", "gigabits_per_device"),
    [
        ("NVLink intra-node, 400 Gb/s InfiniBand NDR per GPU", 400),
        ("NVSwitch 600 GB/s, 200 Gbit/s per GPU", 200),
        ("25 GB/s per GPU", 200),
        ("AWS p4d (400 Gb/s EFA per node)", 50),
        ("EFA 3,200 Gbps", 400),
        ("1.6 Tb/s RoCE per node", 200),
        ("800Gbps inter-node", 100),
        ("100 Gbps Ethernet", 12.5),
        ("10 Gbps between nodes", 1.25),
        ("4x Slingshot 200 Gb/s per node", 100),
        ("InfiniBand 8x HDR 200Gb/s per node", 200),
        ("NVLink 900 GB/s; 8x400 Gb/s NDR", 400),
        ("4x25 GB/s per node", 100),
        ("IB 1600Gbps", 200),
    ],
)
def test_words_of_other_sources(words: str, gigabits_per_device: float) -> None:
    expected = 0.73 * gigabits_per_device * 1e9 / 8.0
    assert network_bytes_per_second(words, 8) == pytest.approx(expected)


@pytest.mark.parametrize(
    "words",
    [
        "200 Gb/s InfiniBand HDR",  # of one port, of which there may be eight
        "InfiniBand HDR200",
        "NVLink (600 GB/s)",
        "8x A100 80 GB per node",
        "PCIe 64 GB/s",
        "accelerator_interconnect=8x 4th Gen NVLink; host_networking=Management: 100Gb/s Ethernet",
    ],
)
def test_what_may_be_a_part_or_another_link_says_nothing(words: str) -> None:
    assert network_bytes_per_second(words, 8) is None


@pytest.mark.parametrize(
    ("words", "gigabits"),
    [("NVLink hybrid mesh; InfiniBand 100 Gb/s", 100), ("200 Gb/s InfiniBand HDR", 200)],
)
def test_a_rate_without_a_count_is_of_one_port(words: str, gigabits: float) -> None:
    expected = 0.73 * gigabits * 1e9 / 8.0 / 8
    assert port_bytes_per_second(words, 8, usual=1.0) == pytest.approx(expected)


@pytest.mark.parametrize("words", ["NVLink; InfiniBand", "NVLink, IB between nodes", "RoCE v2"])
@pytest.mark.parametrize(
    ("usual_gigabits", "port_gigabits"), [(25, 100), (200, 200), (400, 400), (1600, 800)]
)
def test_a_kind_of_network_alone_may_be_one_port_of_its_generation(
    words: str, usual_gigabits: float, port_gigabits: float
) -> None:
    """Four V100 share a port of 100 Gb/s; an A100 has one of 200, and an H100 of 400."""
    usual = 0.73 * usual_gigabits * 1e9 / 8.0
    expected = 0.73 * port_gigabits * 1e9 / 8.0 / 8
    assert port_bytes_per_second(words, 8, usual=usual) == pytest.approx(expected)


@pytest.mark.parametrize(
    "words",
    [
        "",
        "NVLink (600 GB/s)",
        "PCIe 64 GB/s",
        "8x200 Gb/s HDR IB per node",
        "400 Gb/s InfiniBand per GPU",
        "accelerator_interconnect=NVLink; host_networking=Management: InfiniBand 100 Gb/s",
        "DGX NVLink + InfiniBand",
        "DGX H100 reference (NVLink, InfiniBand NDR)",
        "NVLink, EFA",
        "Slingshot inter-node",
    ],
)
def test_other_words_name_no_port(words: str) -> None:
    assert port_bytes_per_second(words, 8, usual=18e9) is None
