"""`meshwright discover`: a cluster file from this machine, or from what a tool has printed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.options import JsonOption
from planner.errors import InputError

if TYPE_CHECKING:
    from planner.importers.cluster.discovered import Discovered
    from planner.importers.cluster.formats import ClusterFormat, Told
    from planner.importers.cluster.known_devices import KnownDevice
    from planner.schema.cluster import Cluster

FORMAT_NAMES = (
    "nvidia-smi",
    "amd-smi",
    "slurm",
    "kubernetes",
    "nccl-topology",
    "nccl-tests",
    "skypilot",
    "ray",
)


def discover(  # noqa: PLR0913  (one parameter per option)
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="Write the cluster file there.")
    ] = Path("cluster.json"),
    sources: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="A tool's output, - for standard input; several tables of nccl-tests may be "
            "given. Default: look at this machine.",
        ),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="NAME", help=f"{', '.join(FORMAT_NAMES)}; default: by its content."
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="NAME", help="Profile of the devices."),
    ] = None,
    nodes: Annotated[
        int,
        typer.Option(
            "--nodes",
            min=1,
            max=131_072,
            metavar="N",
            help="Number of identical nodes.",
        ),
    ] = 1,
    devices_per_node: Annotated[
        int | None,
        typer.Option(
            "--devices-per-node",
            min=1,
            max=1024,
            metavar="N",
            help="Devices in a node, where the output does not say.",
        ),
    ] = None,
    collective: Annotated[
        str | None,
        typer.Option(
            "--collective",
            metavar="NAME",
            help="Collective that was measured, where the output does not say.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Describe this machine, or a cluster whose tools' output is given, as a cluster file."""
    from planner.cli.console import print_document
    from planner.cli.profile import write_cluster
    from planner.hardware import cluster_hardware
    from planner.importers.cluster.formats import Told

    known = _profile_of(device)
    told = Told(
        device=None if known is None else known.name,
        node_count=nodes,
        devices_per_node=devices_per_node,
    )
    found = _found(sources or [], form=_checked(form), told=told, collective=collective)
    hardware = cluster_hardware(found.cluster)  # refuses a device that has no profile
    write_cluster(out, found.cluster.to_json())
    if as_json:
        print_document(found.cluster)
        return
    typer.echo(f"{found.cluster.name}: {hardware.device_count} devices")
    taken = () if known is None or known.assumption is None else (known.assumption,)
    for line in (*_groups(found.cluster), *taken, *found.notes, f"written to {out}"):
        typer.echo(line)


def _profile_of(device: str | None) -> KnownDevice | None:
    """Return the profile that is told, by its own name, a shorter one or that of a product."""
    from planner.importers.cluster.discovered import device_called
    from planner.importers.cluster.known_devices import KnownDevice, devices_fitting, known_device

    if device is None:
        return None
    if devices_fitting(device):
        return known_device(device, field="--device")
    return KnownDevice(name=device_called(device, field="--device"))


def _found(
    sources: list[str], *, form: ClusterFormat | None, told: Told, collective: str | None
) -> Discovered:
    from planner.importers.cluster.discovered import text_of
    from planner.importers.cluster.formats import cluster_from_output, format_of
    from planner.importers.cluster.this_machine import discover_here

    if not sources:
        return discover_here(device=told.device)
    contents = [
        ("standard input" if source == "-" else source, _content(source)) for source in sources
    ]
    first_source, first = contents[0]
    known = form or format_of(text_of(first, source=first_source), source=first_source)
    if known == "nccl-tests":
        return _fitted(contents, device=told.device, collective=collective)
    if len(contents) > 1:
        raise InputError(
            "may be given once, but for tables of nccl-tests",
            field="--from",
            value=f"{len(contents)} files",
            remedy="give one file, or put Slurm's records into one",
        )
    return cluster_from_output(first, source=first_source, form=known, told=told)


def _fitted(
    contents: list[tuple[str, bytes]], *, device: str | None, collective: str | None
) -> Discovered:
    from planner.cli.collective_fit import fitted_cluster
    from planner.importers.cluster.discovered import Discovered, device_called, text_of
    from planner.importers.cluster.nccl_tests import collective_tables

    tables = [
        table
        for source, content in contents
        for table in collective_tables(
            text_of(content, source=source), source=source, collective=collective
        )
    ]
    names = ", ".join(Path(source).name for source, _ in contents)
    known = device or device_called(tables[0].product, field=contents[0][0])
    cluster, error = fitted_cluster(tables, name=names[:100], device=known, source=names[:100])
    kinds = ", ".join(sorted({table.figures[0].kind for table in tables}))
    measured = sum(len(table.figures) for table in tables)
    said = (
        f"fitted to {measured} measurements of {kinds} over {tables[0].rank_count} ranks; mean "
        f"error {error:.0%}"
    )
    return Discovered(cluster=cluster, notes=(said,))


def _content(source: str) -> bytes:
    from planner.importers.cluster.discovered import TEXT_LIMIT
    from planner.schema.files import file_content, readable

    if source != "-":
        return file_content(
            Path(source),
            bytes_limit=TEXT_LIMIT,
            too_large="give the output of one command alone",
        )
    with readable(Path("standard input")):
        return sys.stdin.buffer.read(TEXT_LIMIT + 1)


def _checked(form: str | None) -> ClusterFormat | None:
    from typing import cast

    if form is not None and form not in FORMAT_NAMES:
        raise InputError(
            "is not a format that can be read",
            field="--format",
            value=form,
            remedy=f"use one of {', '.join(FORMAT_NAMES)}",
        )
    return cast("ClusterFormat | None", form)


def _groups(cluster: Cluster) -> list[str]:
    lines = []
    for group in cluster.node_groups:
        memory = group.host_memory_bytes
        host = "" if memory is None else f", {memory / 2**30:.0f} GiB of host memory each"
        nodes = "1 node" if group.node_count == 1 else f"{group.node_count} nodes"
        lines.append(f"{nodes} of {group.devices_per_node} x {group.device}{host}")
    return lines
