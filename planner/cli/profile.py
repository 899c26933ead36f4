"""`meshwright profile`: measure this machine, and write a cluster file that plans can take."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from planner.cli.options import JsonOption
from planner.errors import InputError
from planner.extras import check_extras

if TYPE_CHECKING:
    from planner.schema.cluster import Cluster
    from planner.schema.figures import MachineFigures

DEFAULT_SECONDS = 60.0


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
        typer.Option("--device", metavar="KIND", help="cpu or cuda; default: GPUs if there are."),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option("--seconds", min=1.0, max=3600.0, metavar="S", help="How long to measure."),
    ] = DEFAULT_SECONDS,
    as_json: JsonOption = False,
) -> None:
    """Measure this machine's products, attention, memory and network; write a cluster file."""
    from planner.cli.console import print_document
    from planner.cli.machine_profile import measured_cluster

    figures = measured_figures(ranks=ranks, device=device, seconds=seconds)
    cluster = measured_cluster(figures)
    write_cluster(out, cluster.to_json())
    if as_json:
        print_document(cluster)
        return
    for line in summary_lines(cluster, figures):
        typer.echo(line)
    typer.echo(f"written to {out}")


def measured_figures(*, ranks: int | None, device: str | None, seconds: float) -> MachineFigures:
    """Return what the executor measures in a process of its own, which says how far it is.

    Raises:
        InputError: if the executor is not installed, or the machine cannot be measured.
    """
    from planner.schema.figures import MachineFigures

    check_extras("meshwright profile", "executor.profiler")
    with tempfile.TemporaryDirectory(prefix="meshwright-profile-") as directory:
        path = Path(directory) / "figures.json"
        words = [sys.executable, "-m", "executor.profiler", "--out", str(path)]
        words += ["--seconds", str(seconds)]
        words += ["--ranks", str(ranks)] if ranks is not None else []
        words += ["--device", device] if device is not None else []
        done = subprocess.run(words, check=False, stderr=None)
        if done.returncode != 0:
            raise InputError(
                "this machine could not be measured",
                field="meshwright profile",
                value=f"exit status {done.returncode}",
                remedy="mend what the line above says",
            )
        return MachineFigures.read(path)


def summary_lines(cluster: Cluster, figures: MachineFigures) -> list[str]:
    """Return what a person wants to know of the profile, a line each."""
    from planner.hardware import profile_of
    from planner.schema.job import Precision

    device = profile_of(cluster, cluster.devices[0])
    attention, (level,) = device.attention, device.levels
    products = ", ".join(
        f"{name.value} {device.peak_tflop_per_second[name] * 1e3:.1f}"
        for name in (Precision.BF16, Precision.FP32)
    )
    forward = attention.forward_tflop_per_second * 1e3
    backward = attention.backward_tflop_per_second * 1e3
    memory, optimizer = device.memory_bandwidth_gb_per_second, device.host.optimizer_gb_per_second
    network = f"{level.bandwidth_gb_per_second:.2f} GB/s, {level.latency_us:.0f} us for eight ranks"
    return [
        f"{cluster.name}: {figures.conditions}",
        f"products: GFLOP/s {products}",
        f"attention: GFLOP/s {forward:.1f} forward, {backward:.1f} backward",
        f"memory: {memory:.1f} GB/s, optimizer {optimizer:.2f} GB/s",
        f"small operator: {device.kernel_us:.1f} us",
        f"network ({figures.backend}): {network}",
    ]


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
