"""What the page of exports shows: a tab for each target, its files, and what they lose."""

from __future__ import annotations

from dataclasses import dataclass

from planner.errors import InputError
from planner.exporters.registry import JOBS, LAUNCHERS, TARGETS, ExportedFile, export
from planner.schema.plan import Plan

_LABELS = {
    "megatron-lm": "Megatron-LM",
    "megatron-bridge": "Megatron-Bridge",
    "torchtitan-0.2": "torchtitan 0.2",
    "deepspeed": "DeepSpeed",
    "accelerate": "Accelerate",
    "hf-trainer": "HF Trainer",
    "axolotl": "Axolotl",
    "axolotl-deepspeed": "Axolotl, DeepSpeed",
    "llama-factory": "LLaMA-Factory",
    "lightning-trainer": "Lightning",
    "nemo": "NeMo 2",
    "verl-megatron": "verl, Megatron",
    "nemo-rl": "NeMo-RL",
    "nemo-rl-megatron": "NeMo-RL, Megatron",
    "maxtext": "MaxText",
    "slurm": "Slurm",
    "kubeflow": "Kubeflow",
    "skypilot": "SkyPilot",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tab:
    """A target by its name in links and in words."""

    target: str
    label: str
    is_shown: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportView:
    """One plan for one target; `refusal` says why the target can run nothing like it."""

    plan: Plan
    tabs: tuple[Tab, ...]
    target: str
    label: str
    files: tuple[ExportedFile, ...]
    losses: tuple[str, ...]
    refusal: InputError | None
    jobs: tuple[Tab, ...]
    job_of: str | None


def export_view(plan: Plan, target: str | None, job_of: str | None = None) -> ExportView:
    """Return what the plan becomes for `target`, or for the first one.

    A launcher has tabs of the jobs that it can start, of which `job_of` is shown.

    Raises:
        InputError: if there is no such target.
    """
    shown = _known(target or TARGETS[0])
    refusal = None
    files: tuple[ExportedFile, ...] = ()
    losses: tuple[str, ...] = ()
    try:
        exported = export(plan, shown, job_of=job_of)
        files, losses = exported.files, exported.losses
    except InputError as error:
        refusal = error
    return ExportView(
        plan=plan,
        tabs=tuple(
            Tab(target=name, label=_label(name), is_shown=name == shown) for name in TARGETS
        ),
        target=shown,
        label=_label(shown),
        files=files,
        losses=losses,
        refusal=refusal,
        jobs=_jobs(job_of) if shown in LAUNCHERS else (),
        job_of=job_of,
    )


def _jobs(shown: str | None) -> tuple[Tab, ...]:
    """Return what a launcher can start: our executor, or a framework's job."""
    own = Tab(target="", label="Our executor", is_shown=shown is None)
    return (
        own,
        *(Tab(target=name, label=f"{_label(name)}'s job", is_shown=name == shown) for name in JOBS),
    )


def exported_file(plan: Plan, target: str, name: str, job_of: str | None = None) -> ExportedFile:
    """Return one of the files that the plan becomes for `target`.

    Raises:
        InputError: if there is no such target or file, or the target can run nothing like the plan.
    """
    files = export(plan, _known(target), job_of=job_of).files
    for file in files:
        if file.name == name:
            return file
    raise InputError(
        f"is not a file of the export to {target}",
        field="name",
        value=name,
        remedy=f"use one of {', '.join(file.name for file in files)}",
    )


def _known(target: str) -> str:
    if target not in TARGETS:
        raise InputError(
            "is not a target",
            field="target",
            value=target,
            remedy=f"use one of {', '.join(TARGETS)}",
        )
    return target


def _label(target: str) -> str:
    return _LABELS.get(target, target)
