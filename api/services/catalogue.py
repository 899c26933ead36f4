"""The catalogue: which models and devices a request can name."""

from __future__ import annotations

from api.schemas import DeviceList, KnownDevice, KnownModel, ModelList
from api.services.planner import Planner


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
        names = self._planner.device_names()
        return DeviceList(items=tuple(KnownDevice(name=name) for name in names))
