"""Launch scripts, run by bash with stand-ins for what they start."""

from __future__ import annotations

import os
import subprocess

import pytest

from planner.exporters.registry import export
from planner.schema.strategy import Strategy
from tests.unit.exporters.plans import plan_of

TWO_NODES = plan_of(Strategy(data_parallel_shard_degree=16), cluster="2x8xh100-sxm5-80gb")
ONE_NODE = plan_of(Strategy(data_parallel_shard_degree=8))
STAND_INS = {
    "torchrun": 'printf "%s\\n" torchrun "$@"; echo "plan=$MESHWRIGHT_PLAN"\n'
    'echo "connections=${CUDA_DEVICE_MAX_CONNECTIONS-unset}"\n',
    "srun": 'shift; SLURM_NODEID=1 exec "$@"\n',
    "scontrol": "echo node-a; echo node-b\n",
}


def run(plan, target, folder, *words, **variables):
    """The lines that a target's script prints, run with stand-ins first on the PATH."""
    made = export(plan, target)
    for name, body in STAND_INS.items():
        (folder / name).write_text(f"#!/usr/bin/env bash\n{body}")
        (folder / name).chmod(0o755)
    script = folder / made.files[0].name
    script.write_text(made.files[0].text)
    done = subprocess.run(
        ["bash", str(script), *words],  # noqa: S607
        env={"PATH": f"{folder}:{os.environ['PATH']}", **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    return done.returncode, done.stdout.splitlines(), done.stderr


@pytest.mark.parametrize(
    ("cluster", "nodes", "processes"),
    [
        ("64xh100-sxm5-80gb", 8, 8),
        ("64xh100", 8, 8),
        ("8xp5.48xlarge", 8, 8),
        ("72xgb200", 18, 4),
        ("4xh100", 1, 4),
    ],
)
def test_a_number_of_devices_starts_one_process_a_device_on_every_node(cluster, nodes, processes):
    strategy = Strategy(data_parallel_shard_degree=nodes * processes)
    script = export(plan_of(strategy, cluster=cluster, batch=72 * 64), "torchrun").files[0].text
    assert f"--nnodes={nodes} --nproc-per-node={processes} " in script


def test_torchrun_starts_every_rank_of_a_node_with_static_rendezvous(tmp_path):
    given = {"NODE_RANK": "1", "MASTER_ADDR": "node-a"}
    code, lines, _ = run(TWO_NODES, "torchrun", tmp_path, "mine.py", "--lr", "1", **given)
    assert code == 0
    assert lines[:9] == [
        "torchrun",
        "--nnodes=2",
        "--nproc-per-node=8",
        "--node-rank=1",
        "--master-addr=node-a",
        "--master-port=29500",
        "mine.py",
        "--lr",
        "1",
    ]
    assert "plan=plan.json" in lines


def test_torchrun_on_several_nodes_wants_to_know_which_this_is(tmp_path):
    code, _, said = run(TWO_NODES, "torchrun", tmp_path)
    assert code != 0
    assert "NODE_RANK" in said


def test_slurm_starts_torchrun_on_each_node_by_its_number(tmp_path):
    given = {"SLURM_SUBMIT_DIR": "/home/me", "SLURM_JOB_NODELIST": "node-[a-b]"}
    code, lines, said = run(TWO_NODES, "slurm", tmp_path, "mine.py", **given)
    assert code == 0, said
    assert "--node-rank=1" in lines
    assert "--master-addr=node-a" in lines
    assert lines[6] == "mine.py"
    assert "plan=/home/me/plan.json" in lines


def test_slurms_header_asks_for_the_plans_devices():
    header = [
        line.removeprefix("#SBATCH ")
        for line in export(TWO_NODES, "slurm").files[0].text.splitlines()
        if line.startswith("#SBATCH")
    ]
    assert "--nodes=2" in header
    assert "--ntasks-per-node=1" in header
    assert "--gpus-per-node=8" in header


@pytest.mark.parametrize(("zero_stage", "connections"), [(1, "1"), (3, "unset")])
def test_megatrons_script_passes_the_plans_arguments_before_yours(
    zero_stage, connections, tmp_path
):
    plan = plan_of(Strategy(data_parallel_shard_degree=8, zero_stage=zero_stage))
    code, lines, _ = run(
        plan, "megatron-lm", tmp_path, "--num-layers", "32", CUDA_DEVICE_MAX_CONNECTIONS="8"
    )
    assert code == 0
    script = lines.index("pretrain_gpt.py")
    assert lines[script + 1 : script + 3] == ["--tensor-model-parallel-size", "1"]
    assert lines.index("--num-layers") > lines.index("--micro-batch-size")
    assert f"connections={connections}" in lines


def test_one_node_needs_no_address(tmp_path):
    code, lines, _ = run(ONE_NODE, "torchrun", tmp_path)
    assert (code, lines[3], lines[4]) == (0, "--standalone", "train.py")


@pytest.mark.parametrize("target", ["kubeflow", "skypilot"])
def test_manifests_are_yaml_with_the_plans_nodes(target):
    import yaml  # noqa: PLC0415 - the planner's own, used here alone

    documents = list(yaml.safe_load_all(export(TWO_NODES, target).files[0].text))
    last = documents[-1]
    nodes = last["num_nodes"] if target == "skypilot" else last["spec"]["trainer"]["numNodes"]
    assert nodes == 2
