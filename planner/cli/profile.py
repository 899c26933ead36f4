"""`meshwright profile`: measure this machine, and write a cluster file that plans can take."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from planner.cli.options import JsonOption
from planner.errors import InputError
from planner.extras import check_extras

if TYPE_CHECKING:
    from planner.calibration.in_situ import InSitu
    from planner.network import LevelProfile
    from planner.schema.cluster import Cluster
    from planner.schema.figures import MachineFigures
    from planner.schema.plan import Plan
    from planner.schema.trial import Trial

DEFAULT_SECONDS = 60.0
TRIAL_SECONDS_RATIO = 3.0  # of steps that do not agree, to those of kernels
BUSY = "the machine was busy"


def profile(
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="Write the cluster file there.")
    ] = Path("cluster.json"),
    ranks: Annotated[
        int | None,
        typer.Option(
            "--ranks", min=1, max=64, metavar="N", help="Default: every GPU, or four CPU ranks."
        ),
    ] = None,
    device: Annotated[
        Literal["cpu", "cuda"] | None,
        typer.Option(
            "--device", metavar="KIND", help="cpu or cuda; default: cuda if there are GPUs."
        ),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option("--seconds", min=1.0, max=3600.0, metavar="S", help="How long to measure."),
    ] = DEFAULT_SECONDS,
    as_json: JsonOption = False,
) -> None:
    """Measure this machine's ranks, alone and in training; write a cluster file."""
    from planner.cli.console import print_document

    found = profiled(ranks=ranks, device=device, seconds=seconds)
    write_cluster(out, found.cluster.to_json())
    if as_json:
        print_document(found.cluster)
        return
    for line in summary_lines(found):
        typer.echo(line)
    typer.echo(f"written to {out}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineProfile:
    """A machine's cluster, the figures of its kernels, and what steps made of them."""

    cluster: Cluster
    figures: MachineFigures
    in_situ: InSitu


def profiled(*, ranks: int | None, device: str | None, seconds: float) -> MachineProfile:
    """Return the profile of this machine: its kernels, and steps of small models.

    Raises:
        InputError: if the executor is not installed, or the machine cannot be measured.
    """
    from planner.calibration.in_situ import corrected, probes
    from planner.cli.machine_profile import measured_cluster

    figures = measured_figures(ranks=ranks, device=device, seconds=seconds)
    alone = measured_cluster(figures)
    plans = probes(alone)
    trials = measured_trials(plans, seconds=seconds, device=figures.device_kind)
    in_situ = corrected(alone, plans, trials)
    return MachineProfile(cluster=in_situ.cluster, figures=figures, in_situ=in_situ)


def measured_figures(*, ranks: int | None, device: str | None, seconds: float) -> MachineFigures:
    """Return what the executor measures in a process of its own, which says how far it is.

    Raises:
        InputError: if the executor is not installed, or the machine cannot be measured.
    """
    from planner.schema.figures import MachineFigures

    words = ["--seconds", str(seconds)]
    words += ["--ranks", str(ranks)] if ranks is not None else []
    words += ["--device", device] if device is not None else []
    with tempfile.TemporaryDirectory(prefix="meshwright-profile-") as directory:
        path = Path(directory) / "figures.json"
        _measure("executor.profiler", ["--out", str(path), *words])
        return MachineFigures.read(path)


def measured_trials(plans: Sequence[Plan], *, seconds: float, device: str) -> tuple[Trial, ...]:
    """Return the steps of each plan, trained on this machine's ranks until rounds agree.

    Raises:
        InputError: if the executor is not installed, or the plans cannot be run.
    """
    from planner.schema.trial import TrialPlans, Trials

    with tempfile.TemporaryDirectory(prefix="meshwright-profile-") as directory:
        asked, answer = Path(directory) / "plans.json", Path(directory) / "trials.json"
        asked.write_text(TrialPlans(plans=tuple(plans)).to_json(), encoding="utf-8")
        limit = TRIAL_SECONDS_RATIO * seconds
        words = [str(asked), "--out", str(answer), "--seconds", str(limit), "--device", device]
        _measure("executor.trials", words)
        return Trials.read(answer).trials


def _measure(module: str, words: Sequence[str]) -> None:
    check_extras("meshwright profile", module)
    done = subprocess.run([sys.executable, "-m", module, *words], check=False, stderr=None)
    if done.returncode != 0:
        raise InputError(
            "this machine could not be measured",
            field="meshwright profile",
            value=f"exit status {done.returncode}",
            remedy="correct what the line above says",
        )


def summary_lines(found: MachineProfile) -> list[str]:
    """Return what a person wants to know of the profile, a line each."""
    from planner.hardware import profile_of
    from planner.schema.job import Precision

    cluster, figures = found.cluster, found.figures
    device = profile_of(cluster, cluster.devices[0])
    attention = device.attention
    products = ", ".join(
        f"{name.value} {device.peak_tflop_per_second[name] * 1e3:.1f}"
        for name in (Precision.FP8, Precision.BF16, Precision.FP32)
        if any(item.precision is name for item in figures.products)
    )
    peaks, measured_in = device.peak_tflop_per_second, figures.attentions[0].precision
    gflop = 1e3 * peaks[measured_in] / peaks[Precision.BF16]
    forward = attention.forward_tflop_per_second * gflop
    backward = attention.backward_tflop_per_second * gflop
    memory, optimizer = device.memory_bandwidth_gb_per_second, device.host.optimizer_gb_per_second
    return [
        f"{cluster.name}: {figures.conditions}",
        f"products: GFLOP/s {products}",
        f"attention: GFLOP/s {measured_in.value} {forward:.1f} forward, {backward:.1f} backward",
        f"memory: {memory:.1f} GB/s, optimizer {optimizer:.2f} GB/s",
        f"small operator: {device.kernel_us:.1f} us",
        *_network_lines(device.levels, figures),
        *in_situ_lines(found.in_situ),
    ]


def _network_lines(levels: Sequence[LevelProfile], figures: MachineFigures) -> Iterator[str]:
    """Yield what was measured between ranks, if there are several."""
    for level in levels if figures.rank_count > 1 else ():
        bandwidth, latency = level.bandwidth_gb_per_second, level.latency_us
        yield f"network ({figures.backend}): {bandwidth:.2f} GB/s, {latency:.0f} us for eight ranks"


def in_situ_lines(in_situ: InSitu) -> Iterator[str]:
    """Yield what steps made of the kernels, and whether they agreed."""
    scalars = in_situ.scalars
    yield (
        f"in a step: products at {scalars.compute_efficiency_ratio:.2f} of that, attention at "
        f"{scalars.attention_efficiency_ratio:.2f} beside it, operators "
        f"{scalars.host_overhead_ratio:.1f} times as long"
    )
    yield f"steps left out of the fit: within {in_situ.error_ratio:.0%} of it in 2 of 3 cases"
    if in_situ.was_busy:
        yield busy_line(in_situ.variation_ratio)


def busy_line(variation_ratio: float) -> str:
    """Return the warning that a profile was taken on a busy machine."""
    return f"{BUSY}: its profile varied by {variation_ratio:.0%}; profile it again when it is idle"


def write_cluster(path: Path, text: str) -> None:
    """Write a cluster file.

    Raises:
        InputError: if it cannot be written there.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror}",
            field="--out",
            value=str(path),
            remedy="give a path in a folder that exists and can be written",
        ) from None
