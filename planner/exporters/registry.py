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
from planner.exporters.rl_policies import export_nemo_rl, export_verl
from planner.exporters.slurm import export_slurm
from planner.exporters.torchrun import export_torchrun
from planner.exporters.torchtitan import export_torchtitan, export_torchtitan_toml
from planner.schema.plan import Plan

__all__ = ["TARGETS", "Export", "ExportedFile", "export"]

_EXPORTERS: dict[str, Callable[[Plan, str], Export]] = {
    "torchrun": export_torchrun,
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
    "slurm": export_slurm,
    "kubeflow": export_kubeflow,
    "skypilot": export_skypilot,
}
TARGETS: tuple[str, ...] = tuple(_EXPORTERS)


def export(plan: Plan, target: str) -> Export:
    """Return the files that `plan` becomes for `target`, and what they lose of it.

    Raises:
        InputError: if there is no such target, or it can run nothing like the plan.
    """
    exporter = _EXPORTERS.get(target)
    if exporter is None:
        raise InputError(
            "is no target", field="target", value=target, remedy=f"use one of {', '.join(TARGETS)}"
        )
    return exporter(plan, target)
