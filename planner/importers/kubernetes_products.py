"""Which product a Kubernetes node has, by whichever label says it.

GPU feature discovery and AMD's labeller name the product itself; clouds have labels of their own,
or nothing but the type of the instance.

Sources: NVIDIA/k8s-device-plugin, docs/gpu-feature-discovery/README.md; ROCm/k8s-device-plugin,
cmd/k8s-node-labeller/README.md; cloud.google.com/kubernetes-engine/docs/concepts/gpus; the clouds'
own lists of accelerated instances.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

PRODUCT = "nvidia.com/gpu.product"
_LABELS = (
    PRODUCT,
    "amd.com/gpu.product-name",
    "beta.amd.com/gpu.product-name",
    "cloud.google.com/gke-accelerator",
)
_RENAMED = {"nvidia-tesla-a100": "nvidia-a100-40gb"}  # GKE's name of the first A100
_TYPE = "node.kubernetes.io/instance-type"
_TYPES = (
    (r"p4d\..*", "A100 SXM4 40GB"),
    (r"p4de\..*", "A100 SXM4 80GB"),
    (r"p5\.48xlarge", "H100 80GB HBM3"),
    (r"p5en?\..*", "H200"),
    (r"p6-b200\..*", "B200"),
    (r"g4dn\..*", "T4"),
    (r"g5\..*", "A10G"),
    (r"g6\..*", "L4"),
    (r"g6e\..*", "L40S"),
    (r"Standard_ND96a?sr_v4", "A100 SXM4 40GB"),
    (r"Standard_ND96amsr_A100_v4", "A100 SXM4 80GB"),
    (r"Standard_ND96isr?f?_H100_v5", "H100 80GB HBM3"),
    (r"Standard_NC\d+adi?s_H100_v5", "H100 NVL"),
    (r"Standard_ND96isr_H200_v5", "H200"),
    (r"Standard_ND96isr_MI300X_v5", "MI300X"),
    (r"a2-(highgpu|megagpu)-\d+g", "A100 SXM4 40GB"),
    (r"a2-ultragpu-\d+g", "A100 SXM4 80GB"),
    (r"a3-(highgpu|megagpu)-\d+g", "H100 80GB HBM3"),
    (r"a3-ultragpu-8g", "H200"),
    (r"a4-highgpu-8g", "B200"),
    (r"g2-standard-\d+", "L4"),
)


def product_of(labels: Mapping[str, Any]) -> tuple[str, str]:
    """Return the label that says what product a node has, and the product; none is empty."""
    for name in _LABELS:
        if labels.get(name):
            value = str(labels[name])
            return name, _RENAMED.get(value, value)
    kind = str(labels.get(_TYPE, ""))
    for pattern, product in _TYPES:
        if re.fullmatch(pattern, kind):
            return _TYPE, product
    return PRODUCT, ""
