"""Output of `kubectl get nodes -o json|yaml` -> a cluster, by the labels of GPU feature discovery.

`nvidia.com/gpu.product`, `.count`, `.clique`, `.replicas` and `mig.strategy` are read, and labels
of clouds where the first is missing. Nodes that are not ready, that take no new pods, or whose GPUs
are cut up or shared are left out, and said to be.

Source: NVIDIA/k8s-device-plugin, docs/gpu-feature-discovery/README.md.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from planner.errors import DocumentError
from planner.importers.cluster.discovered import Discovered, Node, device_called, discovered
from planner.importers.cluster.kubernetes_products import PRODUCT, instance_of, product_of

_UNITS = {
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "": 1,
}
_QUANTITY = re.compile(r"([0-9]{1,18})(Ki|Mi|Gi|Ti|k|M|G|)")
_COUNT, _CLIQUE = "nvidia.com/gpu.count", "nvidia.com/gpu.clique"
_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu")
_REPLICAS = "nvidia.com/gpu.replicas"
_COUNT_LIMIT = 1024


def cluster_from_kubernetes(
    fields: Mapping[str, Any], *, source: str, device: str | None
) -> Discovered:
    """Return the cluster of the nodes in a list, or of the one node, that `fields` describe.

    Raises:
        InputError: if they are no nodes, or a product has no profile.
    """
    left_out: Counter[str] = Counter()
    cliques: Counter[str] = Counter()
    networks: dict[str, None] = {}
    nodes = []
    for index, item in enumerate(_items(fields, source)):
        labels, where = _labels(item), f"{source}: items.{index}"
        why = _why_out(item, labels)
        if why is not None:
            left_out[why] += 1
            continue
        nodes.append(_node(item, labels, device=device, where=where))
        instance = instance_of(labels)
        if instance is not None:
            networks[instance.network_assumption] = None
        if labels.get(_CLIQUE):
            cliques[str(labels[_CLIQUE])] += 1
    notes = [f"left out, {why}: {count}" for why, count in left_out.items()]
    if cliques:
        sizes = " or ".join(str(size) for size in sorted(set(cliques.values())))
        notes.append(
            f"{len(cliques)} NVLink domains of {sizes} nodes by their cliques; the profile's own "
            "domain is used"
        )
    return discovered(nodes, name=source, notes=(*notes, *networks))


def _items(fields: Mapping[str, Any], source: str) -> list[Mapping[str, Any]]:
    items = fields.get("items") if "items" in fields else [fields]
    if not isinstance(items, list) or not all(
        isinstance(item, Mapping) and item.get("kind", "Node") == "Node" for item in items
    ):
        raise DocumentError(
            "holds something else than nodes",
            field=source,
            value=fields.get("kind"),
            remedy="give the output of `kubectl get nodes -o json`",
        )
    return items


def _labels(item: Mapping[str, Any]) -> Mapping[str, Any]:
    return _mapping(_mapping(item.get("metadata")).get("labels"))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _why_out(item: Mapping[str, Any], labels: Mapping[str, Any]) -> str | None:
    """Return why the node cannot be planned with, None if it can."""
    spec, status = _mapping(item.get("spec")), _mapping(item.get("status"))
    if spec.get("unschedulable") is True:
        return "cordoned"
    conditions = status.get("conditions")
    for condition in conditions if isinstance(conditions, list) else []:
        if _mapping(condition).get("type") == "Ready" and condition.get("status") != "True":
            return "not ready"
    if _device_count(item, labels) is None:
        return "no GPUs"
    product = str(labels.get(PRODUCT, ""))
    if "-MIG-" in product or labels.get("nvidia.com/mig.strategy") == "mixed":
        return "GPUs cut into instances (MIG)"
    shared = product.endswith("-SHARED") or str(labels.get(_REPLICAS, "1")) not in {"0", "1"}
    return "GPUs shared in time" if shared else None


def _device_count(item: Mapping[str, Any], labels: Mapping[str, Any]) -> int | None:
    """Return how many GPUs pods can have: what the node offers, else what it has."""
    allocatable = _mapping(_mapping(item.get("status")).get("allocatable"))
    offered = [allocatable[name] for name in _RESOURCES if name in allocatable]
    for value in offered or [labels.get(_COUNT)]:
        text = str(value)
        if text.isdigit() and 1 <= int(text[:6]) <= _COUNT_LIMIT:
            return int(text)
    return None


def _node(
    item: Mapping[str, Any], labels: Mapping[str, Any], *, device: str | None, where: str
) -> Node:
    status = _mapping(item.get("status"))
    memory = _QUANTITY.fullmatch(str(_mapping(status.get("capacity")).get("memory")))
    label, product = product_of(labels)
    instance = instance_of(labels)
    if device is None and not product and instance is not None:
        device = instance.device
    return Node(
        name=str(_mapping(item.get("metadata")).get("name", where)),
        device=device or device_called(product, field=f"{where}.metadata.labels.{label}"),
        device_count=_device_count(item, labels) or 1,
        host_memory_bytes=int(memory[1]) * _UNITS[memory[2]] if memory and int(memory[1]) else None,
        network_bandwidth_bytes_per_second=None
        if instance is None
        else instance.network_bandwidth_bytes_per_second,
    )
