"""Clouds: a plan, or a framework's job of it, as a Kubeflow TrainJob and as a SkyPilot task.

Sources: `trainer.kubeflow.org/v1alpha1` as of kubeflow-trainer-api 2.3.0, whose `torch-distributed`
runtime sets torchrun's `PET_*` variables itself; `sky/utils/schemas.py` of SkyPilot 0.14.1.
"""

from __future__ import annotations

import json

from planner.exporters.draft import Draft
from planner.exporters.export import Export, ExportedFile
from planner.exporters.job_commands import REST, SCRIPT, JobCommand, Node
from planner.exporters.launch import Launch
from planner.exporters.placement import placement
from planner.exporters.torchrun import PLAN_FILE

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
# What the runtime sets on every node: kubeflow/trainer, `pkg/runtime/framework/plugins/torch`.
_KUBEFLOW_NODE = Node(rank='"${PET_NODE_RANK}"', address='"${PET_MASTER_ADDR}"')
_SKYPILOT_NODE = Node(
    rank='"$SKYPILOT_NODE_RANK"', address='"$(echo "$SKYPILOT_NODE_IPS" | head -n 1)"'
)
_UNPLACED = (
    "nodes are numbered as the cluster hands them out: which share a switch is not said, so that "
    "collectives across nodes may be slower than planned on a network of several levels"
)


def export_kubeflow(launch: Launch) -> Export:
    """Return a TrainJob, with the files that its program reads in a ConfigMap that it mounts."""
    place = placement(launch.plan)
    manifest = _TRAIN_JOB.format(
        name=launch.plan.id,
        files="".join(f"  {f.name}: |\n{_block(f.text, '    ')}" for f in launch.files),
        nodes=place.node_count,
        devices=place.devices_per_node,
        **_kubeflow_program(launch),
    )
    file = ExportedFile(name="trainjob.yaml", text=manifest)
    return _unplaced(launch.draft).exported(file)


def _kubeflow_program(launch: Launch) -> dict[str, str]:
    """Return the container's command and variables.

    The runtime sets torchrun's own; a framework's files are copied to where its job is run.
    """
    if launch.job is None:
        variables = f"    env:\n      - name: MESHWRIGHT_PLAN\n        value: /plan/{PLAN_FILE}\n"
        return {"command": '["torchrun", "train.py"]', "variables": variables}
    words = "; ".join(["cp -L /plan/* .", *_shell_lines(launch.command(_KUBEFLOW_NODE))])
    return {"command": json.dumps(["bash", "-ec", words]), "variables": ""}


def export_skypilot(launch: Launch) -> Export:
    """Return a SkyPilot task, and the files that it uploads."""
    draft, place = _unplaced(launch.draft), placement(launch.plan)
    device = launch.plan.cluster.resolved.node_groups[0].device
    if device not in _SKYPILOT_NAMES:
        draft = draft.losing(
            f"SkyPilot's name of {device} is not known: set resources.accelerators"
        )
    text = _TASK.format(
        name=launch.plan.id,
        needs=launch.needs,
        accelerator=json.dumps(_SKYPILOT_NAMES.get(device, device)),
        nodes=place.node_count,
        devices=place.devices_per_node,
        run="\n".join(f"  {line}" for line in _shell_lines(launch.command(_SKYPILOT_NODE))),
    )
    return draft.exported(ExportedFile(name="skypilot.yaml", text=text), *launch.files)


def _shell_lines(command: JobCommand) -> list[str]:
    """Return the lines that set variables and run the job, one's own script as `train.py`."""
    exports = [f"export {name}={value}" for name, value in command.variables.items()]
    return [*exports, command.line.replace(SCRIPT, "train.py").replace(f" {REST}", "")]


def _unplaced(draft: Draft) -> Draft:
    """Say that nodes are in no order, where there are levels of network between them."""
    levels = draft.plan.cluster.resolved.levels or ()
    return draft.losing(_UNPLACED) if len(levels) > 2 else draft


def _block(text: str, indent: str) -> str:
    return "".join(f"{indent}{line}\n" for line in text.splitlines())


_TRAIN_JOB = """# kubectl create -f trainjob.yaml; set the image and the script to yours.
apiVersion: v1
kind: ConfigMap
metadata:
  name: {name}
data:
{files}---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  name: {name}
spec:
  runtimeRef:
    name: torch-distributed
  trainer:
    image: train:latest
    command: {command}
    numNodes: {nodes}
    numProcPerNode: {devices}
    resourcesPerNode:
      limits:
        nvidia.com/gpu: "{devices}"
{variables}  runtimePatches:
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

_TASK = """# sky launch skypilot.yaml, with {needs}.
name: {name}
num_nodes: {nodes}
resources:
  accelerators: {{{accelerator}: {devices}}}
workdir: .
run: |
{run}
"""
