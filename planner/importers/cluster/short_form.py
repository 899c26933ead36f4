"""Short forms: a cluster in one word.

    16x8xh100-sxm5-80gb    16 nodes of 8
    64xh100-sxm5-80gb      64 devices, in nodes of the size that the device is sold in: 8 of 8
    4xh100-sxm5-80gb       fewer devices than a node has: one node of 4
    16xp5.48xlarge         16 instances of a cloud, with their devices and their network
    p5.48xlarge            one of them

Devices may be called by a shorter name where that means one alone. `16 x 8 x h100` and `64 h100`
are read alike, and called by the form without spaces.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from planner.errors import InputError
from planner.hardware import device_profile, unknown_device
from planner.hardware_profiles import NodeProfile
from planner.importers.cluster.cloud_instances import CloudInstance, cloud_instance, instances_like
from planner.importers.cluster.discovered import Discovered
from planner.importers.cluster.known_devices import devices_fitting, known_device
from planner.schema.cluster import DEVICE_LIMIT, Cluster, NodeGroup

_FORM = re.compile(
    r"(?:(?:(?P<nodes>-?[0-9]{1,9})\s*[xX\xd7*]\s*)?(?P<count>-?[0-9]{1,9})(?:\s*[xX\xd7*]\s*|\s+))?"
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]{1,60})"
)
_FIELD = "cluster"
_NODE_LIMIT, _DEVICES_PER_NODE_LIMIT = 2**17, 1024
_REMEDY = (
    "write for example 8xh100-sxm5-80gb, 16x8xh100-sxm5-80gb or 16xp5.48xlarge, or give a cluster "
    "document"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """What a short form says; `count` is of devices, or of a cloud's instances."""

    text: str
    name: str
    count: int | None
    nodes: int | None


def read_short_form(text: str) -> Discovered:
    """Return the cluster that `text` stands for, and what was assumed in reading it.

    Raises:
        InputError: if it has another form, names no known device, or no such nodes are sold.
    """
    form = _form(text)
    if devices_fitting(form.name):
        return _of_devices(form)
    instance = cloud_instance(form.name)
    if instance is None:
        raise _unknown(form)
    return _of_instances(form, instance)


def _of_devices(form: _Form) -> Discovered:
    device = known_device(form.name, field=_FIELD)
    said = [] if device.assumption is None else [device.assumption]
    node = device_profile(device.name).node
    if form.count is None:
        raise _countless(form, device.name, node)
    if form.nodes is not None:
        _check_node(form, device.name, node)
        nodes, per_node = form.nodes, form.count
    else:
        nodes, per_node = _whole_nodes(form, device.name, node)
        if nodes > 1:
            said.append(
                f"{form.count} x {device.name} were taken as {nodes} nodes of {per_node}, the size "
                "that it is sold in"
            )
    group = NodeGroup(
        name=device.name, device=device.name, node_count=nodes, devices_per_node=per_node
    )
    return Discovered(cluster=Cluster(name=form.text, node_groups=(group,)), notes=tuple(said))


def _form(text: str) -> _Form:
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise _no_form(text)
    count, nodes = (None if match[key] is None else int(match[key]) for key in ("count", "nodes"))
    parts = [match[key] for key in ("nodes", "count", "name") if match[key] is not None]
    form = _Form(text="x".join(parts), name=match["name"], count=count, nodes=nodes)
    if nodes is not None and count is not None:
        _check_count("node count", nodes, _NODE_LIMIT)
        _check_count("devices per node", count, _DEVICES_PER_NODE_LIMIT)
        _check_count("number of devices", nodes * count, DEVICE_LIMIT)
    elif count is not None:
        _check_count("count", count, DEVICE_LIMIT)
    return form


def _check_count(what: str, count: int, limit: int) -> None:
    if not 1 <= count <= limit:
        raise InputError(
            f"{what} must lie between 1 and {limit}", field=_FIELD, value=count, remedy=_REMEDY
        )


def _unknown(form: _Form) -> InputError:
    """Return what to raise for a name that is neither a device's nor an instance's."""
    near = instances_like(form.name)
    if near:
        return InputError(
            "is not an instance that is known",
            field=_FIELD,
            value=form.name,
            remedy=f"did you mean {', '.join(near)}? Else write nodes x devices x device",
        )
    return (
        _no_form(form.text)
        if form.count is None
        else unknown_device(form.name.lower(), field=_FIELD)
    )


def _no_form(text: str) -> InputError:
    return InputError("is not a short form of a cluster", field=_FIELD, value=text, remedy=_REMEDY)


def _countless(form: _Form, device: str, node: NodeProfile | None) -> InputError:
    size = _size(node) or 1
    whole = f", or {size}x{device} for a whole node" if size > 1 else ""
    return InputError(
        "names a device and does not say how many",
        field=_FIELD,
        value=form.text,
        remedy=f"write 1x{device} for one{whole}",
    )


def _of_instances(form: _Form, instance: CloudInstance) -> Discovered:
    if form.nodes is not None:
        raise InputError(
            f"says how many devices a node has, and {instance.name} says it already",
            field=_FIELD,
            value=form.text,
            remedy=f"write {form.nodes}x{instance.name} for {form.nodes} nodes of "
            f"{instance.device_count}, or {form.nodes}x{form.count}x{instance.device}",
        )
    count = 1 if form.count is None else form.count
    _check_count("number of instances", count, _NODE_LIMIT)
    _check_count("number of devices", count * instance.device_count, DEVICE_LIMIT)
    group = NodeGroup(
        name=instance.name,
        device=instance.device,
        node_count=count,
        devices_per_node=instance.device_count,
        network_bandwidth_bytes_per_second=instance.network_bandwidth_bytes_per_second,
    )
    cluster = Cluster(name=form.text, node_groups=(group,))
    return Discovered(cluster=cluster, notes=instance.assumptions)


def _size(node: NodeProfile | None) -> int | None:
    return None if node is None else node.device_count


def _whole_nodes(form: _Form, device: str, node: NodeProfile | None) -> tuple[int, int]:
    """Return the nodes, and the devices of each, that so many devices alone stand for."""
    count, size = form.count or 1, _size(node)
    if size is None:
        _check_count("devices per node", count, _DEVICES_PER_NODE_LIMIT)
        return 1, count
    if count <= size:
        return 1, count
    if count % size == 0:
        _check_count("node count", count // size, _NODE_LIMIT)
        return count // size, size
    fits = node is not None and count <= node.device_limit
    one = f"1x{count}x{device} for 1 node of {count}, " if fits else ""
    raise InputError(
        f"{count} devices are {count / size:g} nodes of {size}, as {device} is sold",
        field=_FIELD,
        value=form.text,
        remedy=f"write {one}{_ways(count, size, device)}",
    )


def _check_node(form: _Form, device: str, node: NodeProfile | None) -> None:
    """Raise where more devices are asked of a node than it can have."""
    nodes, count = form.nodes or 1, form.count or 1
    if node is None or count <= node.device_limit:
        return
    size = node.device_count or node.device_limit
    most = f", and {node.device_limit} are the most" if node.device_limit != size else ""
    raise InputError(
        f"has {count} devices a node, and {device} is sold in nodes of {size}{most}",
        field=_FIELD,
        value=form.text,
        remedy=f"write {_ways(nodes * count, size, device)}; a cluster file may state any node",
    )


def _ways(count: int, size: int, device: str) -> str:
    """Return how to write so many devices in nodes that can be had, both ways."""
    if count % size == 0:
        nodes = count // size
        return f"{nodes}x{size}x{device} or {count}x{device} for {nodes} nodes of {size}"
    part = max(n for n in range(1, size + 1) if count % n == 0)
    nodes, whole = count // part, count // size + 1
    return (
        f"{nodes}x{part}x{device} for {nodes} nodes of {part}, or {whole * size}x{device} for "
        f"{whole} nodes of {size}"
    )
