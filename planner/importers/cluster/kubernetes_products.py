"""Which product a Kubernetes node has, by whichever label says it.

GPU feature discovery and AMD's labeller name the product itself; clouds have labels of their own,
or nothing but the type of the instance, which says how nodes are connected as well.

Sources: NVIDIA/k8s-device-plugin, docs/gpu-feature-discovery/README.md; ROCm/k8s-device-plugin,
cmd/k8s-node-labeller/README.md; cloud.google.com/kubernetes-engine/docs/concepts/gpus.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.importers.cluster.cloud_instances import CloudInstance, cloud_instance

PRODUCT = "nvidia.com/gpu.product"
_LABELS = (
    PRODUCT,
    "amd.com/gpu.product-name",
    "beta.amd.com/gpu.product-name",
    "cloud.google.com/gke-accelerator",
)
_RENAMED = {"nvidia-tesla-a100": "nvidia-a100-40gb"}  # GKE's name of the first A100
_TYPE = "node.kubernetes.io/instance-type"


def product_of(labels: Mapping[str, Any]) -> tuple[str, str]:
    """Return the label that says what product a node has, and the product; none is empty."""
    for name in _LABELS:
        if labels.get(name):
            value = str(labels[name])
            return name, _RENAMED.get(value, value)
    return PRODUCT, ""


def instance_of(labels: Mapping[str, Any]) -> CloudInstance | None:
    """Return the type of a cloud's instance that a node is, where it says so and it is known."""
    name = labels.get(_TYPE)
    return cloud_instance(str(name)) if name else None
