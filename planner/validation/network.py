"""Network: what a row's words say that one device can send to other nodes.

Words are taken clause by clause: `8x200 Gb/s HDR per node`, `400 Gb/s per GPU`, `EFA 3.2 Tbps`.
A rate is of a device or a node as its clause says; several ports are a node's, and so is what
Ethernet or EFA reach, or more bits than a single port has. Other rates are of one port, of which a
node may have one or many, and so is a kind of network whose rate is not said, of its generation's
ports; those of links inside a node are none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

ACHIEVED_RATIO = 0.73  # over line rate, as in the device profiles

_CLAUSES = re.compile(r"[;()|]|,\s")
_RATE = re.compile(
    r"(?:(?P<count>\d+)\s*[x\u00d7]\s*(?P<between>(?:[A-Za-z][\w-]*\s+){0,4}))?"
    r"(?P<number>\d[\d,]*(?:\.\d+)?)\s*(?P<prefix>[GgTt])"
    r"(?:(?P<bytes>B)(?:ps|/s(?:ec)?)|(?:bit|b)(?:ps|/s(?:ec)?)?)\b"
)
_OF_DEVICE = re.compile(r"(?:\bper|/)\s*(?:gpu|device|accelerator|gcd)\b", re.IGNORECASE)
_OF_NODE = re.compile(
    r"(?:\bper\b.*|/\s*)\b(?:node|server|host|machine|instance)\b|\binter-?node|\bbetween\b.*\bnodes",
    re.IGNORECASE,
)
_OF_NODE_BY_NAME = re.compile(r"\b(?:efa|ethernet)\b", re.IGNORECASE)
_INSIDE = re.compile(r"nvlink|nvswitch|pcie|xgmi|infinity fabric", re.IGNORECASE)
_OUTSIDE = re.compile(r"infiniband|\bib\b|roce|efa|ethernet|\bhdr|\bndr|\bedr", re.IGNORECASE)
_LISTS_ALL_LINKS = (
    "accelerator_interconnect"  # of MLPerf's descriptions, storage and management too
)
_ONE_PORT_BITS = 800e9  # the fastest: ConnectX-8
_PORTS_BITS = (100e9, 200e9, 400e9, _ONE_PORT_BITS)  # EDR, HDR, NDR, XDR
_KIND_ALONE = re.compile(r"infiniband|\bib\b|roce", re.IGNORECASE)
_KNOWN_NODES = re.compile(r"\b(dgx|superpod|eos|selene|reference)\b", re.IGNORECASE)
# Gb/s of a node with so many devices. Source: Le Scao et al. 2022, arXiv:2211.05100, section 3.2.
_SITES = {("jean zay", 8): 400.0}


def network_bytes_per_second(text: str, devices_per_node: int) -> float | None:
    """Return what one device can send to other nodes, `None` where the words do not say.

    A known site's name stands for what its nodes have.
    """
    found = sorted(_device_bits(text, devices_per_node), key=lambda item: not item[0])
    for _, bits in found:
        return ACHIEVED_RATIO * bits / 8.0
    for (site, size), gigabits in _SITES.items():
        if site in text.lower() and size == devices_per_node:
            return ACHIEVED_RATIO * gigabits * 1e9 / 8.0 / devices_per_node
    return None


def port_bytes_per_second(text: str, devices_per_node: int, *, usual: float) -> float | None:
    """Return what one device can send where a node has a single port of the rate that words name.

    Where they name a kind of network alone, the port is the slowest that is as fast as the `usual`
    bytes per second of a device, of its profile. `None` where they name none, or say what a device
    or a node has, or whose nodes they are.
    """
    if network_bytes_per_second(text, devices_per_node) is not None or _LISTS_ALL_LINKS in text:
        return None
    for clause in _CLAUSES.split(text):
        rate = _RATE.search(clause)
        if rate is not None and _OUTSIDE.search(clause):
            return ACHIEVED_RATIO * _bits(rate) / 8.0 / devices_per_node
    if _KIND_ALONE.search(text) is None or _KNOWN_NODES.search(text):
        return None
    line = 8.0 * usual / ACHIEVED_RATIO
    port = next((bits for bits in _PORTS_BITS if bits >= line), _ONE_PORT_BITS)
    return ACHIEVED_RATIO * port / 8.0 / devices_per_node


def _device_bits(text: str, devices_per_node: int) -> Iterator[tuple[bool, float]]:
    """Yield bits per second of a device, and whether its clause speaks of devices."""
    if _LISTS_ALL_LINKS in text:
        return
    for clause in _CLAUSES.split(text):
        rate = _RATE.search(clause)
        if rate is None or (_INSIDE.search(clause) and not _OUTSIDE.search(clause)):
            continue
        bits = _bits(rate)
        if _OF_DEVICE.search(clause):
            yield True, bits
        elif _is_of_node(clause, rate, bits):
            yield False, bits / devices_per_node


def _is_of_node(clause: str, rate: re.Match[str], bits: float) -> bool:
    several = rate["count"] is not None or (bits > _ONE_PORT_BITS and rate["bytes"] is None)
    return bool(several or _OF_NODE.search(clause) or _OF_NODE_BY_NAME.search(clause))


def _bits(rate: re.Match[str]) -> float:
    """Return bits per second of all ports; a lone `b` in lower case is a bit."""
    scale = 1e12 if rate["prefix"] in "Tt" else 1e9
    one = float(rate["number"].replace(",", "")) * scale * (8.0 if rate["bytes"] else 1.0)
    return one * int(rate["count"] or 1)
