"""The catalogue: which models and devices a request can name."""

from __future__ import annotations

from api.schemas import DeviceList, KnownDevice, KnownModel, ModelList
from api.services.planner import Planner
from planner.hardware import device_profile
from planner.units import GIB


class CatalogueService:
    """Lists what is known by name."""

    def __init__(self, planner: Planner) -> None:
        self._planner = planner

    def models(self) -> ModelList:
        """Return the models."""
        names = self._planner.model_names()
        return ModelList(items=tuple(KnownModel(name=name) for name in names))

    def devices(self) -> DeviceList:
        """Return the devices."""
        return DeviceList(items=tuple(_device(name) for name in self._planner.device_names()))


def _device(name: str) -> KnownDevice:
    profile = device_profile(name)
    return KnownDevice(
        name=name,
        memory_bytes=profile.memory_gib * GIB,
        devices_per_node=None if profile.node is None else profile.node.device_count,
        price_per_device_hour=profile.price_per_device_hour,
    )
