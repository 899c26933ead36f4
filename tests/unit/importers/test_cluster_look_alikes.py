"""Files that describe machines and are not read are refused by what they look like."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import InputError
from planner.importers.cluster.formats import cluster_from_output
from planner.importers.clusters import read_cluster

LOOK_ALIKES = {
    "Terraform": 'resource "aws_instance" "gpu" {\n  instance_type = "p5.48xlarge"\n}\n',
    "an AWS ParallelCluster": "Scheduling:\n  Scheduler: slurm\n  SlurmQueues:\n    - Name: gpu\n",
    "an eksctl": "apiVersion: eksctl.io/v1alpha5\nkind: ClusterConfig\nnodeGroups:\n  - {}\n",
    "a CloudFormation": "AWSTemplateFormatVersion: 2010-09-09\nResources: {}\n",
    "a dstack": "type: fleet\nname: gpus\nnodes: 2\n",
    "a DeepSpeed or MPI hostfile": "worker-0 slots=8\nworker-1 slots=8\n",
    "a table of sinfo": "PARTITION AVAIL  TIMELIMIT  NODES\ngpu up 1-00 4\n",
    "a script of sbatch": "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --gpus-per-node=8\nsrun true\n",
    "a Kubernetes manifest": "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n",
    "lspci": "Architecture:        x86_64\nCPU(s): 96\n",
    "a table of links": "GPU 0: NVIDIA H100\n\t Link 0: 26.562 GB/s\n",
}


@pytest.mark.parametrize("title", LOOK_ALIKES)
def test_a_file_that_looks_like_machines_is_refused_by_its_name(title: str) -> None:
    with pytest.raises(InputError, match=f"looks like {title}") as refused:
        cluster_from_output(LOOK_ALIKES[title].encode(), source="given")
    assert refused.value.field == "given"
    assert refused.value.remedy


@pytest.mark.parametrize("title", ["an AWS ParallelCluster", "a Kubernetes manifest", "a dstack"])
def test_a_yaml_file_in_place_of_a_cluster_document_is_refused_so_too(
    title: str, tmp_path: Path
) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(LOOK_ALIKES[title], encoding="utf-8")
    with pytest.raises(InputError, match=f"looks like {title}"):
        read_cluster(str(file))


def test_what_looks_like_nothing_names_the_formats() -> None:
    with pytest.raises(InputError, match="is not an output that is known"):
        cluster_from_output(b"hello", source="given")
