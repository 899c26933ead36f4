"""Hardware: the devices of a cluster in SI units, with profiles that are read once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import islice, permutations
from math import factorial, gcd
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ValidationError

from planner.errors import InputError
from planner.hardware_profiles import DeviceProfile, StackProfile
from planner.network import Level, kind_levels, shared_level
from planner.schema.cluster import Cluster, NodeGroup, Nvme
from planner.schema.document import document_error, parse_fields
from planner.schema.job import DEVICE_RETURNS_LIMIT, Job, Precision, Stack
from planner.schema.model import LatentAttention, ModelGraph
from planner.units import GIB

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

KIND_LIMIT = 4
ORDERS_MOST = 512  # of one pipeline; two kinds of 8 stages have 408 with three returns
TENSOR_FLOAT_32_RATIO = 0.5  # of bf16's rate: data sheets of A100, H100, B200, MI300X, RTX 4090
_FUSED_MOST = 128  # elements of a head that cuDNN trains on every device
_LEAST, _MOST = 1e-12, 1e12  # of the numbers of a profile, in its own units


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHardware:
    """All devices of one kind in a cluster, in SI: how many there are, and how fast they are.

    `levels` are the networks as these devices see them; the outermost holds the whole cluster.
    `node_groups` are the cluster's groups of this kind, and `device_group` the first of them, which
    stands for all.
    """

    device: str
    kind: Literal["cuda", "cpu"]
    device_group: str
    node_groups: tuple[str, ...]
    device_count: int
    devices_per_node: int
    device_memory_bytes: float
    host_memory_bytes_per_device: float
    memory_bytes_per_second: float
    peak_flop_per_second: dict[Precision, float]
    profile: DeviceProfile
    levels: tuple[Level, ...]
    to_device_bytes_per_second: float
    from_device_bytes_per_second: float
    nvme_per_device: Nvme | None
    price_per_device_hour: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterHardware:
    """A cluster as kinds of devices. Most have one; a pipeline stage sits on one."""

    kinds: tuple[DeviceHardware, ...]

    @property
    def device_count(self) -> int:
        """Return the devices of all kinds."""
        return sum(kind.device_count for kind in self.kinds)

    @property
    def price_per_hour(self) -> float:
        """Return what all devices cost for an hour."""
        return sum(kind.device_count * kind.price_per_device_hour for kind in self.kinds)

    @property
    def lone_speed_ratio(self) -> float:
        """Return how fast a device is while others idle, the least of all kinds."""
        return min(kind.profile.lone_speed_ratio for kind in self.kinds)

    @property
    def orders(self) -> tuple[tuple[int, ...], ...]:
        """Return the orders in which kinds may follow one another along the pipeline."""
        return tuple(permutations(range(len(self.kinds))))

    def peak_flop_per_second(self, job: Job) -> float:
        """Return the peak rate of all devices together at the job's products."""
        kinds = [for_products_of(job, kind) for kind in self.kinds]
        return sum(one.device_count * one.peak_flop_per_second[job.precision] for one in kinds)

    def stage_kinds(self, device_order: int, *, pipeline_parallel_degree: int) -> tuple[int, ...]:
        """Return the kind of every stage, which is that place in `stage_orders`.

        Raises:
            ValueError: if stages of equal size do not fill every kind.
        """
        comes_back = device_order >= factorial(len(self.kinds))
        orders = self.stage_orders(
            pipeline_parallel_degree, returns=DEVICE_RETURNS_LIMIT if comes_back else 0
        )
        return orders[device_order]

    def stage_orders(
        self, pipeline_parallel_degree: int, *, returns: int
    ) -> tuple[tuple[int, ...], ...]:
        """Return the kind of every stage in each order, [orders][stages], fewest returns first.

        A return is to a kind that the pipeline has left before. Stages of one kind between others
        fill whole nodes, as programs number their ranks. The first orders are those of `orders`;
        there are `ORDERS_MOST` at most.

        Raises:
            ValueError: if stages of equal size do not fill every kind.
        """
        return _stage_orders(*self._shares(pipeline_parallel_degree), returns)

    def can_return(self, pipeline_parallel_degree: int, *, times: int) -> bool:
        """Return whether the pipeline can come back so often to kinds that it has left.

        Raises:
            ValueError: if stages of equal size do not fill every kind.
        """
        shares, units = self._shares(pipeline_parallel_degree)
        return next(_runs(shares, units, len(shares) + times, None), None) is not None

    def _shares(self, pipeline_parallel_degree: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return each kind's stages, and as how many of them whole nodes come."""
        total, shares, units = self.device_count, [], []
        for kind in self.kinds:
            share, rest = divmod(pipeline_parallel_degree * kind.device_count, total)
            if rest:
                raise ValueError(f"{pipeline_parallel_degree} equal stages do not fill every kind")
            size = kind.device_count // share
            shares.append(share)
            units.append(kind.devices_per_node // gcd(size, kind.devices_per_node))
        return tuple(shares), tuple(units)

    def stage_groups(self, device_order: int, *, pipeline_parallel_degree: int) -> list[str]:
        """Return the device group of every stage."""
        kinds = self.stage_kinds(device_order, pipeline_parallel_degree=pipeline_parallel_degree)
        return [self.kinds[kind].device_group for kind in kinds]


@lru_cache(maxsize=64)
def _stage_orders(
    shares: tuple[int, ...], units: tuple[int, ...], returns: int
) -> tuple[tuple[int, ...], ...]:
    found = (
        order
        for run_count in range(len(shares), len(shares) + returns + 1)
        for order in _runs(shares, units, run_count, None)
    )
    return tuple(islice(found, ORDERS_MOST))


def _runs(
    left: Sequence[int], units: Sequence[int], run_count: int, last: int | None
) -> Iterator[tuple[int, ...]]:
    """Yield the stages that are left of each kind in so many runs, the first not of kind `last`."""
    if not run_count:
        yield ()
        return
    for kind, count in enumerate(left):
        for own in range(units[kind], count + 1, units[kind]) if kind != last else ():
            rest = [c - own if k == kind else c for k, c in enumerate(left)]
            pieces = [c // unit for c, unit in zip(rest, units, strict=True)]
            most = sum(min(piece, sum(pieces) - piece + 1) for piece in pieces)
            if sum(piece > 0 for piece in pieces) <= run_count - 1 <= most:
                for order in _runs(rest, units, run_count - 1, kind):
                    yield (kind,) * own + order


def _profiles() -> Traversable:
    from importlib import resources  # noqa: PLC0415  (20 ms: needed once there is a request)

    return resources.files("profiles")


@cache
def device_names() -> tuple[str, ...]:
    """Return the names of the devices that have a profile, sorted."""
    shelf = _profiles() / "devices"
    return tuple(
        sorted(i.name.removesuffix(".yaml") for i in shelf.iterdir() if i.name.endswith(".yaml"))
    )


@cache
def device_profile(name: str) -> DeviceProfile:
    """Return the profile of the device called `name`.

    Raises:
        InputError: if no profile has that name.
    """
    if name not in device_names():
        raise unknown_device(name)
    content = (_profiles() / "devices" / f"{name}.yaml").read_bytes()
    return DeviceProfile.model_validate(parse_fields(content, source=name, yaml_allowed=True))


@cache
def larger_devices(name: str, memory_gib: float) -> tuple[str, ...]:
    """Return devices of more memory that can take the place of another, the least memory first.

    Measured runs were compared with their predictions, and their links within a node are no slower.
    Of those with the same memory, to a GiB, the one whose name is most like the other's stands for
    all.
    """
    own, words = device_profile(name), set(name.split("-"))
    found: dict[int, tuple[int, str]] = {}
    for other in device_names():
        profile = device_profile(other)
        if profile.memory_gib > memory_gib and _can_replace(own, profile):
            size = round(profile.memory_gib)
            likeness = len(words & set(other.split("-")))
            found[size] = max(found.get(size, (-1, "")), (likeness, other))
    return tuple(found[size][1] for size in sorted(found))


def _can_replace(given: DeviceProfile, other: DeviceProfile) -> bool:
    given_links, links = (each.levels[0].bandwidth_gb_per_second for each in (given, other))
    return other.compared_with_runs and other.kind == given.kind and links >= given_links


def unknown_device(name: str, *, field: str = "device") -> InputError:
    """Return what to raise for a device without a profile, with names like its own, else all."""
    from difflib import get_close_matches  # noqa: PLC0415  (20 ms: only errors need it)

    near = get_close_matches(name, device_names(), n=3, cutoff=0.4)
    likely = f"did you mean {', '.join(near)}? `meshwright devices` lists all"
    remedy = likely if near else f"known devices are {', '.join(device_names())}"
    return InputError("has no profile", field=field, value=name, remedy=remedy)


def profile_of(cluster: Cluster, name: str) -> DeviceProfile:
    """Return the profile of the device called `name`: the cluster's own, else the shipped one.

    Raises:
        InputError: if there is none, or the cluster's own is bad.
    """
    fields = cluster.device_profiles.get(name)
    if fields is None:
        return device_profile(name)
    source = f"cluster.device_profiles.{name}"
    _check_magnitudes(fields, path=source)
    whole = _with_base(fields, name, source=source) if "like" in fields else fields
    try:
        profile = DeviceProfile.model_validate(whole)
    except ValidationError as error:
        raise document_error(error, source=source) from None
    missing = sorted({item.value for item in Precision} - set(profile.peak_tflop_per_second))
    if missing:
        raise InputError(
            "must have a rate for every precision",
            field=f"{source}.peak_tflop_per_second",
            value=f"none for {', '.join(missing)}",
            remedy="repeat the rate of the nearest format that the device has",
        )
    if profile.device != name or not profile.levels:
        raise InputError(
            "must be the profile's name, and the profile must have a network level",
            field=f"{source}.device",
            value=profile.device,
            remedy=f"write device: {name}, and at least one of levels",
        )
    return profile


def _with_base(fields: Mapping[str, Any], name: str, *, source: str) -> dict[str, Any]:
    """Return a profile's fields, with those of the shipped device that it is `like` for the rest.

    Rates of products and attention that it leaves out are in proportion to its peak in bf16.

    Raises:
        InputError: if no device of that name ships.
    """
    given = {key: value for key, value in fields.items() if key != "like"}
    like = fields["like"]
    if not isinstance(like, str) or like not in device_names():
        raise unknown_device(str(like), field=f"{source}.like")
    base = device_profile(like).model_dump(mode="json")
    for key in ("compared_with_runs", "learnt_stacks", "node"):
        base.pop(key, None)
    peaks = given.get("peak_tflop_per_second")
    own = peaks.get("bf16") if isinstance(peaks, dict) else None
    if isinstance(own, int | float):
        ratio = own / base["peak_tflop_per_second"]["bf16"]
        rates = base["peak_tflop_per_second"]
        base["peak_tflop_per_second"] = {name: rate * ratio for name, rate in rates.items()}
        base["attention"] = _scaled(base["attention"], ratio)
    whole = {**base, "device": name, **given}
    for key, value in given.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            whole[key] = {**base[key], **value}
    return whole


def _scaled(fields: dict[str, Any], ratio: float) -> dict[str, Any]:
    """Return fields with their rates times a ratio, those of parts too."""
    found = dict(fields)
    for key, value in fields.items():
        if isinstance(value, dict):
            found[key] = _scaled(value, ratio)
        elif key.endswith("tflop_per_second"):
            found[key] = value * ratio
    return found


def for_products_of(job: Job, kind: DeviceHardware) -> DeviceHardware:
    """Return the device as the job's products find it: those of fp32 may run in TF32.

    What is known of rates below the peak is of bf16's products, on the same tensor cores.
    """
    if not job.tensor_float_32:
        return kind
    peak = TENSOR_FLOAT_32_RATIO * kind.peak_flop_per_second[Precision.BF16]
    gemm = kind.profile.gemm.model_copy(update={"fp32": None})
    return replace(
        kind,
        peak_flop_per_second={**kind.peak_flop_per_second, Precision.FP32: peak},
        profile=kind.profile.model_copy(update={"gemm": gemm}),
    )


def unfused_device(graph: ModelGraph, hardware: ClusterHardware, stack: Stack) -> str | None:
    """Return the first device on which a stack has no fused attention for a model's heads.

    Latent attention has keys of 192 elements and values of 128. Transformer Engine asks cuDNN for
    them, since it has flash attention for heads of one size, and cuDNN trains heads of more than
    128 on Hopper and later alone: elsewhere the scores are written.

    Source: TransformerEngine `pytorch/attention/dot_product_attention/utils.py`
    (`get_attention_backend`), `common/fused_attn/fused_attn.cpp` (`nvte_get_fused_attn_backend`).
    """
    unlike = any(_is_unlike(run.block.attention) for run in graph.runs)
    if not unlike or stack is not Stack.MEGATRON:
        return None
    lacking = (kind.device for kind in hardware.kinds if not kind.profile.fuses_unlike_heads)
    return next(lacking, None)


def _is_unlike(attention: object) -> bool:
    if not isinstance(attention, LatentAttention):
        return False
    key_size = attention.no_position_head_size + attention.rotary_head_size
    return key_size > _FUSED_MOST and key_size != attention.value_head_size


def check_precision(profile: DeviceProfile, job: Job) -> None:
    """Refuse products in 8 bits, or in TF32, on a device that has none: no stack emulates them.

    Raises:
        InputError: naming the device and the formats that it has.
    """
    if job.tensor_float_32 and not profile.has_tensor_float_32:
        raise InputError(
            f"{profile.device} runs no products of fp32 in TF32",
            field="job.tensor_float_32",
            value=True,
            remedy="leave it out, or use precision bf16 or fp16, or devices that have TF32",
        )
    precision = job.precision
    if precision is Precision.FP8 and precision in profile.not_in_hardware:
        has = [name.value for name in Precision if name not in profile.not_in_hardware]
        raise InputError(
            f"{profile.device} has no fp8 in hardware",
            field="job.precision",
            value=precision.value,
            remedy=f"use {' or '.join(has)}, or devices that have fp8",
        )


def _check_magnitudes(value: object, *, path: str) -> None:
    """Raise for a number that no device has, before arithmetic makes an infinity of it."""
    if isinstance(value, dict):
        for key, item in value.items():
            _check_magnitudes(item, path=f"{path}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check_magnitudes(item, path=f"{path}.{index}")
    elif isinstance(value, int | float) and value and not _LEAST <= abs(value) <= _MOST:
        raise InputError(
            "is not a number that a device has",
            field=path,
            value=value,
            remedy=f"write one between {_LEAST:g} and {_MOST:g}, or 0",
        )


@cache
def stack_profile(stack: Stack) -> StackProfile:
    """Return the profile of a software stack."""
    name = stack.value
    content = (_profiles() / "stacks" / f"{name}.yaml").read_bytes()
    return StackProfile.model_validate(parse_fields(content, source=name, yaml_allowed=True))


def cluster_hardware(cluster: Cluster) -> ClusterHardware:
    """Return `cluster` with its devices' profiles applied, in SI.

    Node groups are of one kind if their devices, and what their nodes hold, are the same; prices
    may differ.

    Raises:
        InputError: if a device is unknown, if there are more kinds than can be put in order, or if
            the levels do not go with the nodes.
    """
    groups: dict[tuple[object, ...], list[NodeGroup]] = {}
    for group in cluster.node_groups:
        groups.setdefault(_likeness(group, profile_of(cluster, group.device)), []).append(group)
    if len(groups) > KIND_LIMIT:
        raise InputError(
            f"has more than {KIND_LIMIT} kinds of devices or nodes",
            field="cluster.node_groups",
            value=len(groups),
            remedy=f"plan at most {KIND_LIMIT} kinds as one job",
        )
    kinds = tuple(_kind(cluster, alike) for alike in groups.values())
    if len(kinds) > 1 and cluster.levels is None:
        around = shared_level([kind.levels[-1] for kind in kinds], cluster.device_count)
        kinds = tuple(replace(kind, levels=(*kind.levels, around)) for kind in kinds)
    return ClusterHardware(kinds=kinds)


def _likeness(group: NodeGroup, profile: DeviceProfile) -> tuple[object, ...]:
    """Return what is the same for node groups of one kind."""
    return (
        group.device,
        group.devices_per_node,
        group.host_bandwidth_bytes_per_second,
        group.network_bandwidth_bytes_per_second,
        _memory_bytes(group, profile),
        _host_memory_bytes(group, profile),
        group.nvme,
    )


def _kind(cluster: Cluster, groups: list[NodeGroup]) -> DeviceHardware:
    group = groups[0]
    profile = profile_of(cluster, group.device)
    return DeviceHardware(
        device=profile.device,
        kind=profile.kind,
        device_group=group.name,
        node_groups=tuple(g.name for g in groups),
        device_count=sum(g.device_count for g in groups),
        devices_per_node=group.devices_per_node,
        device_memory_bytes=_memory_bytes(group, profile),
        host_memory_bytes_per_device=_host_memory_bytes(group, profile),
        memory_bytes_per_second=profile.memory_bandwidth_gb_per_second
        * 1e9
        * profile.memory_efficiency,
        peak_flop_per_second={
            precision: rate * 1e12 for precision, rate in profile.peak_tflop_per_second.items()
        },
        profile=profile,
        levels=kind_levels(cluster, profile.levels, groups),
        to_device_bytes_per_second=group.host_bandwidth_bytes_per_second
        or profile.host.to_device_gb_per_second * 1e9,
        from_device_bytes_per_second=group.host_bandwidth_bytes_per_second
        or profile.host.from_device_gb_per_second * 1e9,
        nvme_per_device=None if group.nvme is None else group.nvme.part(1 / group.devices_per_node),
        price_per_device_hour=_price_per_device_hour(groups, profile),
    )


def _memory_bytes(group: NodeGroup, profile: DeviceProfile) -> float:
    return profile.memory_gib * GIB if group.memory_bytes is None else group.memory_bytes


def _host_memory_bytes(group: NodeGroup, profile: DeviceProfile) -> float:
    if group.host_memory_bytes is None:
        return profile.host.memory_gib_per_device * GIB
    return group.host_memory_bytes / group.devices_per_node


def _price_per_device_hour(groups: list[NodeGroup], profile: DeviceProfile) -> float:
    """Return the mean price of one device for an hour over groups of one kind."""
    total = 0.0
    for group in groups:
        price = group.price_per_device_hour
        total += group.device_count * (profile.price_per_device_hour if price is None else price)
    return total / sum(group.device_count for group in groups)
