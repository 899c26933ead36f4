"""Nodes that SkyPilot's task YAML and Ray's cluster YAML ask for -> a cluster.

Sources: `sky/utils/schemas.py` of SkyPilot 0.14 and its catalogue's names of accelerators;
`python/ray/autoscaler/ray-schema.json` of Ray 2.50. What is asked for is planned for: of Ray's
node types with GPUs the most nodes, of SkyPilot one choice of accelerators.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from planner.errors import DocumentError
from planner.importers.cluster.cloud_instances import cloud_instance
from planner.importers.cluster.discovered import Discovered, Node, discovered
from planner.importers.cluster.known_devices import known_device
from planner.importers.fields import not_read, passed_over

# Names of SkyPilot's and of Ray's that leave a memory out; others are short forms of ours.
_ACCELERATORS = {
    "a100": "a100-sxm4-40gb",
    "v100": "v100-sxm2-16gb",
    "v100-32gb": "v100-sxm2-32gb",
    "mi300x": "mi300x-192gb",
}
_OF_THE_CLOUD = ("infra", "cloud", "region", "zone", "network_tier", "memory", "accelerator_args")
# Keys that are read, told by themselves, or on which neither nodes nor steps depend.
_OF_A_TASK = """
    num_nodes resources service name workdir setup run envs secrets file_mounts volumes inputs
    outputs event_callback config experimental
"""
_OF_RESOURCES = """
    accelerators instance_type any_of ordered use_spot disk_size disk_tier local_disk ports labels
    image_id job_recovery spot_recovery autostop priority
"""
_OF_A_RAY_CLUSTER = """
    available_node_types head_node_type max_workers cluster_name provider auth docker
    upscaling_speed idle_timeout_minutes file_mounts cluster_synced_files
    file_mounts_sync_continuously rsync_exclude rsync_filter initialization_commands setup_commands
    head_setup_commands worker_setup_commands head_start_ray_commands worker_start_ray_commands
    no_restart
"""
_OF_A_NODE_TYPE = """
    resources node_config min_workers max_workers worker_setup_commands docker labels
"""
_OF_A_NODE = "CPU GPU object_store_memory"
_LENGTH_LIMIT = 80
_INSTANCE_KEYS = ("InstanceType", "machineType", "vmSize", "instance_type")


def is_skypilot(fields: Mapping[str, Any]) -> bool:
    """Return whether the fields are a task of SkyPilot's that asks for accelerators."""
    resources = fields.get("resources")
    asked = {"accelerators", "instance_type", "any_of", "ordered"}
    return isinstance(resources, Mapping) and bool(asked & set(resources))


def is_ray(fields: Mapping[str, Any]) -> bool:
    """Return whether the fields are a cluster of Ray's autoscaler."""
    return isinstance(fields.get("available_node_types"), Mapping)


def cluster_from_skypilot(fields: Mapping[str, Any], *, source: str) -> Discovered:
    """Return the nodes that a task asks for.

    Raises:
        DocumentError: if it leaves open which accelerators are chosen, or asks for none.
    """
    resources = fields["resources"]
    count = _whole(fields.get("num_nodes", 1), "num_nodes")
    if "any_of" in resources or "ordered" in resources:
        raise _open("resources.any_of" if "any_of" in resources else "resources.ordered")
    instance = resources.get("instance_type")
    if isinstance(instance, str):
        node, notes = _instance_node(instance, "resources.instance_type")
        _require_of_the_instance(resources.get("accelerators"), node)
    else:
        name, devices = _accelerators(resources.get("accelerators"))
        device, notes = _device(name, "resources.accelerators")
        node = Node(name=source, device=device, device_count=devices)
    if resources.get("use_spot"):
        notes = [*notes, "use_spot: nodes that are taken away are not priced"]
    if fields.get("service"):
        notes = [*notes, "service: the nodes of one replica are planned for"]
    beside = [name for name in _OF_THE_CLOUD if resources.get(name) is not None]
    if beside and not isinstance(instance, str):
        said = "network and host memory are the device's usual ones, whatever is said of"
        notes = [*notes, f"{said} {', '.join(beside)}"]
    own = {name: value for name, value in resources.items() if name not in _OF_THE_CLOUD}
    unread = [*_unread(fields, _OF_A_TASK), *_unread(own, _OF_RESOURCES, "resources.")]
    if unread:
        notes = [*notes, not_read("SkyPilot's task", unread)]
    ignored = {
        **_ignored(fields, _OF_A_TASK, beside="resources service"),
        **_ignored(own, _OF_RESOURCES, "resources.", beside="accelerators"),
    }
    if ignored:
        notes = [*notes, passed_over("SkyPilot's task", ignored)]
    return discovered([node] * count, name=source, notes=notes)


def _unread(fields: Mapping[str, Any], known: str, section: str = "") -> list[str]:
    """Return the paths of keys that say something and are not among those known."""
    names = [name for name, value in fields.items() if value and name not in known.split()]
    return [f"{section}{name}"[:_LENGTH_LIMIT] for name in names]


def _ignored(
    fields: Mapping[str, Any], known: str, section: str = "", *, beside: str
) -> dict[str, list[str]]:
    """Return the known sections none of whose keys is looked at, with their keys."""
    names = [name for name in known.split() if name not in beside.split()]
    sections = {name: fields[name] for name in names if isinstance(fields.get(name), Mapping)}
    return {
        f"{section}{name}": [str(key)[:_LENGTH_LIMIT] for key in keys]
        for name, keys in sections.items()
        if keys
    }


def _require_of_the_instance(given: Any, node: Node) -> None:
    """Raise if accelerators are named beside an instance that has others.

    Raises:
        DocumentError: naming the accelerators.
    """
    if given is None:
        return
    name, count = _accelerators(given)
    if (_device(name, "resources.accelerators")[0], count) != (node.device, node.device_count):
        raise DocumentError(
            f"is not what {node.name} has, {node.device_count} x {node.device}",
            field="resources.accelerators",
            value=f"{name}:{count}",
            remedy="leave one of the two out",
        )


def _accelerators(given: Any) -> tuple[str, int]:
    """Return the one kind of accelerator and how many of it a node has: H100:8, or a mapping."""
    if isinstance(given, list) and len(given) == 1:
        (given,) = given
    if isinstance(given, Mapping) and len(given) == 1:
        ((name, count),) = given.items()
        return str(name), _whole(1 if count is None else count, "resources.accelerators")
    if isinstance(given, str):
        name, _, count = given.partition(":")
        return name, _whole(count or 1, "resources.accelerators")
    raise _open("resources.accelerators")


def _open(field: str) -> DocumentError:
    return DocumentError(
        "leaves open which accelerators a node has",
        field=field,
        remedy="name one kind and how many, such as accelerators: H100:8",
    )


def cluster_from_ray(fields: Mapping[str, Any], *, source: str) -> Discovered:
    """Return the nodes with GPUs that the autoscaler may have at most.

    Raises:
        DocumentError: if no type of node has GPUs that are known.
    """
    nodes: list[Node] = []
    notes: list[str] = []
    head = fields.get("head_node_type")
    whole = fields.get("max_workers")
    bound = None if whole is None else _whole(whole, "max_workers", least=0)
    workers = 0
    kept: dict[str, Mapping[str, Any]] = {}
    for name, kind in fields["available_node_types"].items():
        path = f"available_node_types.{name}"
        if not isinstance(kind, Mapping):
            raise DocumentError(
                "must be a mapping", field=path, value=str(kind), remedy="give the whole file"
            )
        found = _ray_node(kind, path)
        if found is None:
            notes.append(f"{name} has no GPUs, and is left out")
            continue
        node, said = found
        kept[path] = kind
        least = _whole(kind.get("min_workers", 0), f"{path}.min_workers", least=0)
        most = _whole(
            kind.get("max_workers", least if bound is None else bound),
            f"{path}.max_workers",
            least=0,
        )
        if bound is not None and most > bound:
            notes.append(f"max_workers of the whole cluster is {bound}, below {name}'s {most}")
            most = bound
        workers += most
        if most > least:
            notes.append(f"{name} has {least} to {most} workers: {most} are planned for")
        nodes += [node] * (most + (name == head))
        notes += said
    if bound is not None and workers > bound:
        raise DocumentError(
            f"is less than the {workers} workers with GPUs that its types may have together",
            field="max_workers",
            value=bound,
            remedy="say of each type how many there are, or raise it",
        )
    notes += _left_of_ray(fields, kept)
    return discovered(nodes, name=source, notes=dict.fromkeys(notes))


def _left_of_ray(fields: Mapping[str, Any], kept: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield what is told of keys that are not read, of the file and of its types with GPUs."""
    unread = _unread(fields, _OF_A_RAY_CLUSTER)
    ignored = _ignored(fields, _OF_A_RAY_CLUSTER, beside="available_node_types")
    for path, kind in kept.items():
        unread += _unread_of_type(kind, path)
        ignored |= _ignored_of_type(kind, path)
    if unread:
        yield not_read("Ray's cluster", unread)
    if ignored:
        yield passed_over("Ray's cluster", ignored)


def _unread_of_type(kind: Mapping[str, Any], path: str) -> list[str]:
    """Return the paths of a node type's unknown keys, without those of its cloud's own."""
    resources = {
        name: value
        for name, value in (kind.get("resources") or {}).items()
        if not str(name).startswith("accelerator_type:")
    }
    own = _unread(kind, _OF_A_NODE_TYPE, f"{path}.")
    return own + _unread(resources, _OF_A_NODE, f"{path}.resources.")


def _ignored_of_type(kind: Mapping[str, Any], path: str) -> dict[str, list[str]]:
    """Return the sections of a node type none of whose keys is looked at but for the instance's."""
    own = {name: value for name, value in kind.items() if name != "node_config"}
    config = kind.get("node_config") or {}
    own["node_config"] = {
        name: value for name, value in config.items() if name not in _INSTANCE_KEYS
    }
    return _ignored(own, _OF_A_NODE_TYPE, f"{path}.", beside="resources")


def _ray_node(kind: Mapping[str, Any], path: str) -> tuple[Node, list[str]] | None:
    """Return a node of a type and what was assumed of it, None where it has no GPUs."""
    resources = kind.get("resources") or {}
    instance = next(_instances(kind.get("node_config") or {}), None)
    count = resources.get("GPU")
    if count == 0 or (count is None and (instance is None or cloud_instance(instance) is None)):
        return None
    if instance is not None and cloud_instance(instance) is not None:
        return _instance_node(instance, f"{path}.node_config")
    typed = next(
        (key.partition(":")[2] for key in resources if str(key).startswith("accelerator_type:")),
        None,
    )
    if typed is None:
        raise DocumentError(
            "has GPUs of which neither an instance nor an accelerator_type says the kind",
            field=f"{path}.resources.GPU",
            value=count,
            remedy="add accelerator_type:NAME to its resources, or write a cluster file",
        )
    device, notes = _device(typed, f"{path}.resources")
    devices = _whole(count, f"{path}.resources.GPU")
    return Node(name=path, device=device, device_count=devices), notes


def _instances(config: Mapping[str, Any], depth: int = 0) -> Iterator[str]:
    """Yield what a node's configuration names as its instance, wherever its provider has it."""
    for name, value in config.items():
        if name in _INSTANCE_KEYS and isinstance(value, str):
            yield value
        elif isinstance(value, Mapping) and depth < 4:
            yield from _instances(value, depth + 1)


def _instance_node(name: str, field: str) -> tuple[Node, list[str]]:
    found = cloud_instance(name)
    if found is None:
        raise DocumentError(
            "is not an instance with GPUs that is known",
            field=field,
            value=name,
            remedy="write the cluster as nodes x GPUs x device; docs/clusters.md lists instances",
        )
    node = Node(
        name=name,
        device=found.device,
        device_count=found.device_count,
        network_bandwidth_bytes_per_second=found.network_bandwidth_bytes_per_second,
    )
    return node, list(found.assumptions)


def _device(name: str, field: str) -> tuple[str, list[str]]:
    known = _ACCELERATORS.get(name.strip().lower())
    if known is not None:
        return known, [f"{name} was taken as {known}"]
    found = known_device(name, field=field)
    return found.name, [] if found.assumption is None else [found.assumption]


def _whole(value: Any, field: str, *, least: int = 1) -> int:
    """Return a whole number."""
    number = int(value) if isinstance(value, str) and value.isdigit() else value
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if isinstance(number, bool) or not isinstance(number, int) or number < least:
        raise DocumentError(
            f"must be a whole number from {least}", field=field, value=value, remedy="give one"
        )
    return number
