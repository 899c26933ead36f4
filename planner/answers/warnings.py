"""Warnings: what makes an answer less sure than its numbers look, said in every answer.

An assumption says what was filled in for a field that was left open. A warning says that a number
rests on something that nobody has measured or stated, or that the plan runs at a limit. Fields of a
job that count for nothing in a plan are warned of beside these (`idle_fields`).
"""

from __future__ import annotations

from collections.abc import Iterator

from planner.answers.chance_words import percent
from planner.hardware import ClusterHardware, DeviceHardware, unfused_device
from planner.schema.cluster import Cluster
from planner.schema.job import Job
from planner.schema.model import ModelGraph
from planner.schema.plan import Prediction

USUAL_CHANCE = 0.95
_HOPPERS_GENERATION = 3  # of FlashAttention


def answer_warnings(
    model: ModelGraph,
    cluster: Cluster,
    hardware: ClusterHardware,
    job: Job,
    *,
    prediction: Prediction | None,
) -> tuple[str, ...]:
    """Return the warnings of an answer for `cluster`; without `prediction`, those of its hardware.

    `hardware` is the cluster with its devices' profiles applied.
    """
    kinds = [warning for kind in hardware.kinds for warning in _of_kind(kind, job)]
    chance = () if prediction is None else _chance(prediction)
    kernels = _kernels(model, hardware, job)
    return (*chance, *_networks(cluster, hardware), *dict.fromkeys(kinds), *kernels)


def _kernels(model: ModelGraph, hardware: ClusterHardware, job: Job) -> Iterator[str]:
    """Yield where no kernel of the stack's fused attention takes the model's heads."""
    device = unfused_device(model, hardware, job.stack) if job.fused_attention else None
    if device is not None:
        yield (
            f"Transformer Engine trains no fused attention on {device} whose keys are wider than "
            "its values, as this model's are: unless yours does, steps take longer and scores are "
            "kept; set fused_attention false"
        )


def _chance(prediction: Prediction) -> Iterator[str]:
    chance = prediction.fits_probability
    if chance < USUAL_CHANCE:
        yield (
            f"the chance that this fits into memory is {chance:.1%}, below "
            f"{percent(USUAL_CHANCE)}: try one step before a long run, or leave more memory free"
        )


def _networks(cluster: Cluster, hardware: ClusterHardware) -> Iterator[str]:
    """Yield which networks between nodes are those of profiles: nobody stated them."""
    if cluster.levels is not None:
        return
    stated = {
        group.name: group.network_bandwidth_bytes_per_second is not None
        for group in cluster.node_groups
    }
    for kind in hardware.kinds:
        own = kind.levels[: len(kind.levels) - (len(hardware.kinds) > 1)]
        is_used = len(own) > 1 and own[-2].device_count < kind.device_count
        if is_used and not stated[kind.device_group]:
            rate = own[-1].bandwidth_bytes_per_second / 1e9
            yield (
                f"the network between nodes of {kind.device} was assumed: {rate:.3g} GB/s a "
                f"device, as its profile has it; {_STATE_IT}"
            )
    if len(hardware.kinds) > 1:
        names = " and ".join(dict.fromkeys(kind.device for kind in hardware.kinds))
        yield (
            f"the network between nodes of {names} was assumed to be as slow as the slower of "
            f"their own; {_STATE_IT}"
        )


_STATE_IT = (
    "state yours in a cluster file, by network_bandwidth_bytes_per_second of the nodes or by levels"
)


def _of_kind(kind: DeviceHardware, job: Job) -> Iterator[str]:
    profile = kind.profile
    if profile.planned_only is not None:
        yield f"{kind.device} can be planned for, and not run on: {profile.planned_only}"
    learnt = set() if job.calibration is None else {run.device for run in job.calibration.runs}
    is_seen = profile.compared_with_runs or profile.step_error_ratio is not None
    if not is_seen and kind.device not in learnt:
        yield (
            f"no measured run of {kind.device} was compared with a prediction: its figures are "
            "those of data sheets and of devices like it; calibrate with runs of your own"
        )
    is_third = job.fused_attention and job.flash_attention_generation == _HOPPERS_GENERATION
    if is_third and not profile.attention.has_third_generation:
        yield (
            f"flash_attention_generation 3 does not run on {kind.device}, but on Hopper alone: "
            f"attention is priced as {job.stack} usually has it there; leave it out, or set 2"
        )
    cores = profile.core_count
    if cores is not None and kind.devices_per_node > cores:
        yield (
            f"{kind.devices_per_node} ranks share {cores} cores: their steps take longer whenever "
            "anything else runs there"
        )
