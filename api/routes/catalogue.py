"""/v1/models and /v1/devices."""

from __future__ import annotations

from fastapi import APIRouter

from api.deps import Catalogue, Reader
from api.problems import documented
from api.routes.documents import DocumentRoute
from api.schemas import DeviceList, ModelList

router = APIRouter(prefix="/v1", tags=["catalogue"], route_class=DocumentRoute)


@router.get("/models", responses=documented())
def list_models(_: Reader, catalogue: Catalogue) -> ModelList:
    """List the models that a request can name."""
    return catalogue.models()


@router.get("/devices", responses=documented())
def list_devices(_: Reader, catalogue: Catalogue) -> DeviceList:
    """List the devices that a cluster can name."""
    return catalogue.devices()
