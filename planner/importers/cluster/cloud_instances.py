"""Cloud instances: which devices a node of a cloud has, and how such nodes are connected.

The table is `profiles/instances`, one file a provider.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Annotated

from pydantic import Field

from planner.network import REACHED_SHARE
from planner.schema.document import Part, parse_fields

_PREFIX = re.compile(r"^(?:standard_|ml\.)")  # Azure's, which people leave out, and SageMaker's


class InstanceProfile(Part):
    """One row of a data file, in the file's units; no network where none is known."""

    device: str
    device_count: Annotated[int, Field(ge=1)]
    network_gigabit_per_second: Annotated[float, Field(gt=0)] | None = None


class ProviderProfile(Part):
    """One data file of `profiles/instances`."""

    provider: str
    source: str
    instances: dict[str, InstanceProfile]


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudInstance:
    """One type of instance: a node of `device_count` devices."""

    name: str
    provider: str
    device: str
    device_count: int
    network_gigabit_per_second: float | None

    @property
    def network_bandwidth_bytes_per_second(self) -> float | None:
        """Return what collectives between nodes reach per device, None where it is not known.

        β = share · rate / (8 · devices): the adapters' line rate divided among a node's devices.
        """
        if self.network_gigabit_per_second is None:
            return None
        return REACHED_SHARE * self.network_gigabit_per_second * 1e9 / (8 * self.device_count)

    @property
    def network_assumption(self) -> str:
        """Return in words how its nodes were taken to be connected."""
        if self.network_gigabit_per_second is None:
            return f"between nodes of {self.name} the network of the device's profile was assumed"
        return (
            f"{self.name} has {self.network_gigabit_per_second:g} Gb/s between nodes, of which "
            f"collectives were assumed to reach {REACHED_SHARE:g}"
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Return in words what stands for the instance."""
        node = f"{self.name} of {self.provider} was taken as {self.device_count} x {self.device}"
        return node, self.network_assumption


def cloud_instance(name: str) -> CloudInstance | None:
    """Return the type of instance called `name`, in any case and without Azure's prefix."""
    return _by_key().get(_key(name))


def instances_like(name: str) -> list[str]:
    """Return the types of instances whose names are nearly `name`."""
    from difflib import get_close_matches  # noqa: PLC0415  (20 ms: only errors need it)

    near = get_close_matches(_key(name), _by_key(), n=3, cutoff=0.75)
    return [_by_key()[key].name for key in near]


@cache
def cloud_instances() -> tuple[CloudInstance, ...]:
    """Return all types of instances, by provider as in the files."""
    shelf = resources.files("profiles") / "instances"
    files = sorted(
        (file for file in shelf.iterdir() if file.name.endswith(".yaml")),
        key=lambda file: file.name,
    )
    found = []
    for file in files:
        fields = parse_fields(file.read_bytes(), source=file.name, yaml_allowed=True)
        provider = ProviderProfile.model_validate(fields)
        for name, row in provider.instances.items():
            found.append(
                CloudInstance(
                    name=name,
                    provider=provider.provider,
                    device=row.device,
                    device_count=row.device_count,
                    network_gigabit_per_second=row.network_gigabit_per_second,
                )
            )
    return tuple(found)


@cache
def _by_key() -> dict[str, CloudInstance]:
    return {_key(instance.name): instance for instance in cloud_instances()}


def _key(name: str) -> str:
    return _PREFIX.sub("", name.strip().lower())
