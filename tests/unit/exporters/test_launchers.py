"""Launch scripts, run by bash with stand-ins for what they start."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace

import pytest

from planner.errors import InputError
from planner.exporters.registry import JOBS, ExportedFile, export
from planner.schema.strategy import Strategy
from tests.unit.exporters.plans import plan_of

TWO_NODES = plan_of(Strategy(data_parallel_shard_degree=16), cluster="2x8xh100-sxm5-80gb")
ONE_NODE = plan_of(Strategy(data_parallel_shard_degree=8))
STAND_INS = {
    "torchrun": 'printf "%s\\n" torchrun "$@"; echo "plan=$MESHWRIGHT_PLAN"\n'
    'echo "connections=${CUDA_DEVICE_MAX_CONNECTIONS-unset}"\n',
    "accelerate": 'printf "%s\n" accelerate "$@"\n',
    "llamafactory-cli": 'printf "%s\n" llamafactory-cli "$@"\n'
    'echo "$NNODES $NPROC_PER_NODE $NODE_RANK $MASTER_ADDR $MASTER_PORT $FORCE_TORCHRUN"\n',
    "srun": 'shift; SLURM_NODEID=1 exec "$@"\n',
    "scontrol": "echo node-a; echo node-b\n",
}


def run(plan, target, folder, *words, job_of=None, **variables):
    """The lines that a target's script prints, run with stand-ins first on the PATH."""
    return run_export(export(plan, target, job_of=job_of), folder, *words, **variables)


def run_export(made, folder, *words, **variables):
    """The lines that the first file of an export prints, run beside its others by bash."""
    for file in made.files[1:]:
        (folder / file.name).write_text(file.text)
    for name, body in STAND_INS.items():
        (folder / name).write_text(f"#!/usr/bin/env bash\n{body}")
        (folder / name).chmod(0o755)
    script = folder / made.files[0].name
    script.write_text(made.files[0].text)
    done = subprocess.run(
        ["bash", str(script), *words],  # noqa: S607
        cwd=folder,
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


SECOND_NODE = ["--nnodes=2", "--nproc-per-node=8", "--node-rank=1", "--master-addr=node-a",
               "--master-port=29500"]  # fmt: skip
TWO_NODES_SHARED = plan_of(
    Strategy(data_parallel_shard_degree=16, zero_stage=1), cluster="2x8xh100-sxm5-80gb"
)
# Of each job on the second of two nodes: what is run, and what follows the launcher's own words.
STARTED = {
    "torchtitan": ("torchrun", ["-m", "torchtitan.train", "--module", "plan_config", "--config",
                                "plan", "--mine"]),
    "torchtitan-0.2": ("torchrun", ["-m", "torchtitan.train", "--job.config_file",
                                    "plan.toml", "--mine"]),
    "megatron-lm": ("torchrun", ["pretrain_gpt.py", "--tensor-model-parallel-size", "1"]),
    "megatron-bridge": ("torchrun", ["--mine", "model.tensor_model_parallel_size=1"]),
    "deepspeed": ("torchrun", ["--mine", "--deepspeed", "--deepspeed_config", "deepspeed.json"]),
    "hf-trainer": ("torchrun", ["--mine", "training_arguments.json"]),
    "axolotl": ("torchrun", ["-m", "axolotl.cli.train", "axolotl.yaml", "--mine"]),
    "axolotl-deepspeed": ("torchrun", ["-m", "axolotl.cli.train", "axolotl.yaml", "--mine"]),
    "nanotron": ("torchrun", ["run_train.py", "--config-file", "nanotron.yaml", "--mine"]),
}  # fmt: skip
ON_SLURM = {"SLURM_SUBMIT_DIR": "/home/me", "SLURM_JOB_NODELIST": "node-[a-b]"}
BY_HAND = {"NODE_RANK": "1", "MASTER_ADDR": "node-a"}


@pytest.mark.parametrize(("launcher", "given"), [("torchrun", BY_HAND), ("slurm", ON_SLURM)])
@pytest.mark.parametrize("job", STARTED)
def test_launchers_start_a_frameworks_job_from_its_files(job, launcher, given, tmp_path):
    code, lines, said = run(TWO_NODES_SHARED, launcher, tmp_path, "--mine", job_of=job, **given)
    assert code == 0, said
    program, words = STARTED[job]
    assert lines[0] == program
    assert lines[1:6] == SECOND_NODE
    assert lines[6 : 6 + len(words)] == words


@pytest.mark.parametrize(("launcher", "given"), [("torchrun", BY_HAND), ("slurm", ON_SLURM)])
def test_accelerates_launcher_knows_its_machine(launcher, given, tmp_path):
    plan = TWO_NODES_SHARED
    code, lines, _ = run(plan, launcher, tmp_path, job_of="accelerate", **given)
    assert code == 0
    assert lines == [
        "accelerate",
        "launch",
        "--config_file=accelerate.yaml",
        "--machine_rank=1",
        "--main_process_ip=node-a",
        "--main_process_port=29500",
        "train.py",
    ]


@pytest.mark.parametrize(("launcher", "given"), [("torchrun", BY_HAND), ("slurm", ON_SLURM)])
def test_llama_factory_starts_torchrun_by_variables(launcher, given, tmp_path):
    plan = TWO_NODES_SHARED
    code, lines, _ = run(plan, launcher, tmp_path, job_of="llama-factory", **given)
    assert code == 0
    assert lines == ["llamafactory-cli", "train", "llama_factory.yaml", "2 8 1 node-a 29500 1"]


def commands_of(made, target):
    """The shell's text that a cloud runs on a node."""
    import yaml  # noqa: PLC0415 - the planner's own

    *_, last = yaml.safe_load_all(made.files[0].text)
    return last["run"] if target == "skypilot" else last["spec"]["trainer"]["command"][2]


@pytest.mark.parametrize(
    ("cloud", "given"),
    [
        ("skypilot", {"SKYPILOT_NODE_RANK": "1", "SKYPILOT_NODE_IPS": "node-a\nnode-b"}),
        ("kubeflow", {"PET_NODE_RANK": "1", "PET_MASTER_ADDR": "node-a"}),
    ],
)
@pytest.mark.parametrize("job", ["torchtitan", "megatron-lm", "axolotl-deepspeed"])
def test_clouds_start_a_frameworks_job(job, cloud, given, tmp_path):
    made = export(TWO_NODES_SHARED, cloud, job_of=job)
    inner = export(TWO_NODES_SHARED, job)
    text = commands_of(made, cloud).replace("cp -L /plan/* .; ", "")
    for file in inner.files:
        (tmp_path / file.name).write_text(file.text)
    started = replace(made, files=(ExportedFile(name="node.sh", text=text),))
    code, lines, said = run_export(started, tmp_path, **given)
    assert code == 0, said
    assert lines[:6] == ["torchrun", *SECOND_NODE]
    assert made.losses == inner.losses
    assert made.strategy == inner.strategy


def test_kubeflow_mounts_every_file_of_the_job():
    import yaml  # noqa: PLC0415 - the planner's own

    plan = TWO_NODES_SHARED
    held = next(iter(yaml.safe_load_all(
        export(plan, "kubeflow", job_of="axolotl-deepspeed").files[0].text
    )))  # fmt: skip
    files = export(plan, "axolotl-deepspeed").files
    assert held["data"] == {file.name: file.text for file in files}


def test_every_job_is_started_here():
    assert {*STARTED, "accelerate", "llama-factory"} == set(JOBS)


@pytest.mark.parametrize(
    ("target", "job", "problem"),
    [
        ("slurm", "verl", "not a job that launchers start"),
        ("slurm", "torchrun", "not a job that launchers start"),
        ("torchtitan", "deepspeed", "is for launchers"),
    ],
)
def test_a_job_that_cannot_be_started_so_is_refused(target, job, problem):
    with pytest.raises(InputError, match=problem):
        export(TWO_NODES_SHARED, target, job_of=job)
