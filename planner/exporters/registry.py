"""Registry: the targets by name, and the one function that exports to any of them."""

from __future__ import annotations

from collections.abc import Callable

from planner.errors import InputError
from planner.exporters.accelerate import export_accelerate
from planner.exporters.axolotl import export_axolotl, export_axolotl_deepspeed
from planner.exporters.clouds import export_kubeflow, export_skypilot
from planner.exporters.deepspeed import export_deepspeed
from planner.exporters.export import Export, ExportedFile
from planner.exporters.hugging_face import export_hugging_face
from planner.exporters.job_commands import JOBS
from planner.exporters.launch import Launch
from planner.exporters.lightning_trainer import export_lightning
from planner.exporters.llama_factory import export_llama_factory
from planner.exporters.maxtext import export_maxtext
from planner.exporters.megatron import export_megatron
from planner.exporters.megatron_bridge import export_bridge
from planner.exporters.megatron_sections import (
    export_nemo,
    export_nemo_rl_megatron,
    export_verl_megatron,
)
from planner.exporters.nanotron import export_nanotron
from planner.exporters.node_script import export_node_script
from planner.exporters.rl_policies import export_nemo_rl, export_verl
from planner.exporters.slurm import export_slurm
from planner.exporters.torchtitan import export_torchtitan, export_torchtitan_toml
from planner.schema.plan import Plan

__all__ = ["JOBS", "LAUNCHERS", "TARGETS", "Export", "ExportedFile", "export"]

_EXPORTERS: dict[str, Callable[[Plan, str], Export]] = {
    "torchtitan": export_torchtitan,
    "torchtitan-0.2": export_torchtitan_toml,
    "megatron-lm": export_megatron,
    "megatron-bridge": export_bridge,
    "deepspeed": export_deepspeed,
    "accelerate": export_accelerate,
    "hf-trainer": export_hugging_face,
    "axolotl": export_axolotl,
    "axolotl-deepspeed": export_axolotl_deepspeed,
    "llama-factory": export_llama_factory,
    "lightning-trainer": export_lightning,
    "nemo": export_nemo,
    "verl": export_verl,
    "verl-megatron": export_verl_megatron,
    "nemo-rl": export_nemo_rl,
    "nemo-rl-megatron": export_nemo_rl_megatron,
    "nanotron": export_nanotron,
    "maxtext": export_maxtext,
}
_LAUNCHERS: dict[str, Callable[[Launch], Export]] = {
    "torchrun": export_node_script,
    "slurm": export_slurm,
    "kubeflow": export_kubeflow,
    "skypilot": export_skypilot,
}
LAUNCHERS: tuple[str, ...] = tuple(_LAUNCHERS)
TARGETS: tuple[str, ...] = ("torchrun", *_EXPORTERS, *LAUNCHERS[1:])


def export(plan: Plan, target: str, *, job_of: str | None = None) -> Export:
    """Return the files that `plan` becomes for `target`, and what they lose of it.

    A launcher starts the job of the framework `job_of` from its exported files, and otherwise a
    script that applies the plan by our executor.

    Raises:
        InputError: if there is no such target, or it can run nothing like the plan.
    """
    if target in _LAUNCHERS:
        job = None if job_of is None else _job(plan, job_of)
        return _LAUNCHERS[target](Launch(target=target, plan=plan, job=job))
    exporter = _EXPORTERS.get(target)
    if exporter is None:
        raise InputError(
            "is not a target",
            field="target",
            value=target,
            remedy=f"use one of {', '.join(TARGETS)}",
        )
    if job_of is not None:
        raise InputError(
            f"is for launchers, which {target} is not",
            field="job_of",
            value=job_of,
            remedy=f"leave it out, or export to one of {', '.join(LAUNCHERS)}",
        )
    return exporter(plan, target)


def _job(plan: Plan, target: str) -> Export:
    """Return the export of a framework whose job a launcher is to start."""
    if target not in JOBS:
        raise InputError(
            "is not a job that launchers start",
            field="job_of",
            value=target,
            remedy=f"use one of {', '.join(JOBS)}, or leave it out to run the plan by the executor",
        )
    return _EXPORTERS[target](plan, target)
