"""Clouds: a plan as a Kubeflow TrainJob and as a SkyPilot task.

Sources: `trainer.kubeflow.org/v1alpha1` as of kubeflow-trainer-api 2.3.0, whose `torch-distributed`
runtime sets torchrun's `PET_*` variables itself; `sky/utils/schemas.py` of SkyPilot 0.14.1.
"""

from __future__ import annotations

import json

from planner.exporters.draft import Draft, first_draft
from planner.exporters.export import Export, ExportedFile
from planner.exporters.placement import Placement, placement
from planner.exporters.torchrun import PLAN_FILE, PORT
from planner.schema.plan import Plan

_SKYPILOT_NAMES = {
    "h100-sxm5-80gb": "H100",
    "h200-sxm5-141gb": "H200",
    "b200-sxm-180gb": "B200",
    "a100-sxm4-80gb": "A100-80GB",
    "a100-sxm4-40gb": "A100",
    "gh200-96gb": "GH200",
    "l4-24gb": "L4",
    "l40s-48gb": "L40S",
    "a10-24gb": "A10",
    "a10g-24gb": "A10G",
    "t4-16gb": "T4",
    "v100-sxm2-16gb": "V100",
    "v100-sxm2-32gb": "V100-32GB",
    "mi300x-192gb": "MI300X",
    "rtx-4090-24gb": "RTX4090",
    "rtx-5090-32gb": "RTX5090",
}
_UNPLACED = (
    "nodes are numbered as the cluster hands them out: which share a switch is not said, so that "
    "collectives across nodes may be slower than planned on a network of several levels"
)


def export_kubeflow(plan: Plan, target: str) -> Export:
    """Return a TrainJob, with the plan in a ConfigMap that it mounts."""
    draft = _unplaced(first_draft(plan, target))
    manifest = _TRAIN_JOB.format(
        name=plan.id,
        plan=_block(plan.to_json(), "    "),
        nodes=placement(plan).node_count,
        devices=placement(plan).devices_per_node,
    )
    return Export(
        target=target,
        files=(ExportedFile(name="trainjob.yaml", text=manifest),),
        losses=draft.losses,
        strategy=draft.strategy,
    )


def export_skypilot(plan: Plan, target: str) -> Export:
    """Return a SkyPilot task, and the plan that it uploads."""
    draft = _unplaced(first_draft(plan, target))
    place = placement(plan)
    device = plan.cluster.resolved.node_groups[0].device
    if device not in _SKYPILOT_NAMES:
        draft = draft.losing(
            f"SkyPilot's name of {device} is not known: set resources.accelerators"
        )
    text = _TASK.format(
        name=plan.id,
        accelerator=json.dumps(_SKYPILOT_NAMES.get(device, device)),
        nodes=place.node_count,
        devices=place.devices_per_node,
        plan_file=PLAN_FILE,
        rendezvous=_rendezvous(place),
    )
    files = (
        ExportedFile(name="skypilot.yaml", text=text),
        ExportedFile(name=PLAN_FILE, text=plan.to_json()),
    )
    return Export(target=target, files=files, losses=draft.losses, strategy=draft.strategy)


def _unplaced(draft: Draft) -> Draft:
    """Say that nodes are in no order, where there are levels of network between them."""
    levels = draft.plan.cluster.resolved.levels or ()
    return draft.losing(_UNPLACED) if len(levels) > 2 else draft


def _block(text: str, indent: str) -> str:
    return "".join(f"{indent}{line}\n" for line in text.splitlines())


def _rendezvous(place: Placement) -> str:
    if place.node_count == 1:
        return "--standalone"
    return (
        '--node-rank="$SKYPILOT_NODE_RANK" '
        '--master-addr="$(echo "$SKYPILOT_NODE_IPS" | head -n 1)" '
        f"--master-port={PORT}"
    )


_TRAIN_JOB = """# kubectl create -f trainjob.yaml; set the image and the script to yours.
apiVersion: v1
kind: ConfigMap
metadata:
  name: {name}
data:
  plan.json: |
{plan}---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  name: {name}
spec:
  runtimeRef:
    name: torch-distributed
  trainer:
    image: train:latest
    command: ["torchrun", "train.py"]
    numNodes: {nodes}
    numProcPerNode: {devices}
    resourcesPerNode:
      limits:
        nvidia.com/gpu: "{devices}"
    env:
      - name: MESHWRIGHT_PLAN
        value: /plan/plan.json
  runtimePatches:
    - manager: meshwright/export
      trainingRuntimeSpec:
        template:
          spec:
            replicatedJobs:
              - name: node
                template:
                  spec:
                    template:
                      spec:
                        volumes:
                          - name: plan
                            configMap:
                              name: {name}
                        containers:
                          - name: node
                            volumeMounts:
                              - name: plan
                                mountPath: /plan
"""

_TASK = """# sky launch skypilot.yaml; set the script to yours.
name: {name}
num_nodes: {nodes}
resources:
  accelerators: {{{accelerator}: {devices}}}
workdir: .
envs:
  MESHWRIGHT_PLAN: {plan_file}
run: |
  torchrun --nnodes={nodes} --nproc-per-node={devices} {rendezvous} train.py
"""
