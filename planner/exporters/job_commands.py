"""Job commands: what a node runs to start its ranks of an exported framework's job.

Sources: torchtitan 0.3 and 0.2.2, `train.py`; Accelerate 1.15, `commands/launch.py`; DeepSpeed
0.19.8, `add_config_arguments`; transformers 5.23, `HfArgumentParser`, which takes one JSON file;
Axolotl 0.18, `docs/multi-node.qmd`; LLaMA-Factory 0.9.6, `launcher.py`; nanotron's README;
Megatron-Bridge 0.3, `docs/recipe-usage.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from planner.exporters.export import Export
from planner.exporters.placement import placement
from planner.exporters.torchrun import PLAN_FILE, PORT, torchrun_words
from planner.schema.plan import Plan

# Where the program is one's own script: what it is called unless it is named.
SCRIPT = '"${@:-train.py}"'
REST = '"$@"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node's number and the address of the first, as a launcher's shell has them.

    `folder` is where exported files lie, with a slash, where that is not the working directory.
    """

    rank: str
    address: str
    folder: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCommand:
    """Variables to set, and the words to run, both as a shell takes them.

    The words end in the arguments of whoever starts the job, among them the script where the
    program is one's own.
    """

    words: tuple[str, ...]
    variables: Mapping[str, str]

    @property
    def takes_script(self) -> bool:
        """Return whether the program is one's own script."""
        return SCRIPT in self.words

    @property
    def line(self) -> str:
        """Return the words as one line, which replaces the shell."""
        return " ".join(["exec", *self.words])


def executor_command(plan: Plan, node: Node) -> JobCommand:
    """Return the command of a script that calls `meshwright.start()`."""
    words = (*_torchrun(plan, node), SCRIPT)
    return JobCommand(words=words, variables={"MESHWRIGHT_PLAN": f'"{node.folder}{PLAN_FILE}"'})


def job_command(plan: Plan, made: Export, node: Node) -> JobCommand:
    """Return the command of the framework's job, one of `JOBS`, that reads the exported files."""
    return _COMMANDS[made.target](plan, made.files[0].name, node)


def _torchrun(plan: Plan, node: Node) -> tuple[str, ...]:
    return tuple(torchrun_words(plan, node_rank=node.rank, address=node.address))


def _under_torchrun(*words: str, **variables: str) -> Callable[[Plan, str, Node], JobCommand]:
    """Return the command of a program under torchrun; `{file}` stands for the exported file."""

    def command(plan: Plan, file: str, node: Node) -> JobCommand:
        own = tuple(word.replace("{file}", file) for word in words)
        return JobCommand(words=(*_torchrun(plan, node), *own), variables=variables)

    return command


def _megatron(_: Plan, file: str, node: Node) -> JobCommand:
    """Return the command of the exported script, which calls torchrun itself."""
    variables = {"NODE_RANK": node.rank, "MASTER_ADDR": node.address}
    return JobCommand(words=("bash", file, REST), variables=variables)


def _accelerate(plan: Plan, file: str, node: Node) -> JobCommand:
    words = ["accelerate", "launch", f"--config_file={file}"]
    if placement(plan).node_count > 1:
        words += [
            f"--machine_rank={node.rank}",
            f"--main_process_ip={node.address}",
            f"--main_process_port={PORT}",
        ]
    return JobCommand(words=(*words, SCRIPT), variables={})


def _llama_factory(plan: Plan, file: str, node: Node) -> JobCommand:
    place = placement(plan)
    variables = {
        "FORCE_TORCHRUN": "1",
        "NNODES": str(place.node_count),
        "NPROC_PER_NODE": str(place.devices_per_node),
    }
    if place.node_count > 1:
        variables |= {
            "NODE_RANK": node.rank,
            "MASTER_ADDR": node.address,
            "MASTER_PORT": str(PORT),
        }
    return JobCommand(words=("llamafactory-cli", "train", file, REST), variables=variables)


_AXOLOTL = _under_torchrun("-m", "axolotl.cli.train", "{file}", REST)
_COMMANDS: dict[str, Callable[[Plan, str, Node], JobCommand]] = {
    "torchtitan": _under_torchrun(
        "-m", "torchtitan.train", "--module", "plan_config", "--config", "plan", REST
    ),
    "torchtitan-0.2": _under_torchrun(
        "-m", "torchtitan.train", "--job.config_file", "{file}", REST
    ),
    "megatron-lm": _megatron,
    "megatron-bridge": _under_torchrun(SCRIPT, "$(cat {file})"),
    "deepspeed": _under_torchrun(SCRIPT, "--deepspeed", "--deepspeed_config", "{file}"),
    "accelerate": _accelerate,
    "hf-trainer": _under_torchrun(SCRIPT, "{file}"),
    "axolotl": _AXOLOTL,
    "axolotl-deepspeed": _AXOLOTL,
    "llama-factory": _llama_factory,
    "nanotron": _under_torchrun(
        "run_train.py", "--config-file", "{file}", REST, CUDA_DEVICE_MAX_CONNECTIONS="1"
    ),
}
JOBS: tuple[str, ...] = tuple(_COMMANDS)
