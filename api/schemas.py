"""What goes over the wire besides the planner's own documents."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, JsonValue
from pydantic.config import JsonDict

from api.caller import Scope
from planner.schema.agent import Identifier
from planner.schema.document import Part
from planner.schema.job import Job
from planner.schema.service import PlanLabels, PlanTag
from planner.schema.strategy import Strategy


def _name_or_fields(value: object) -> object:
    """Return `value` if it is of either kind; one message says so where it is of neither."""
    if isinstance(value, dict) or (isinstance(value, str) and 0 < len(value) <= _NAME_LENGTH_LIMIT):
        return value
    raise ValueError(
        f"is neither a name nor an object; write a name of 1 to {_NAME_LENGTH_LIMIT} "
        "characters, or an object of fields"
    )


_NAME_LENGTH_LIMIT = 200
Given = Annotated[
    Annotated[str, Field(min_length=1, max_length=_NAME_LENGTH_LIMIT)] | dict[str, Any],
    BeforeValidator(_name_or_fields),
]
ModelReference = Annotated[
    Given,
    Field(
        description="A name that /v1/models lists, the fields of a Hugging Face config.json, or "
        "a model graph. Never a path."
    ),
]
ClusterReference = Annotated[
    Given,
    Field(
        description="A short form: 64xh100-sxm5-80gb is 64 devices in nodes of the size that they "
        "are sold in, 16x8xh100-sxm5-80gb is 16 nodes of 8, 16xp5.48xlarge is 16 instances of a "
        "cloud. Or a cluster document. Never a path."
    ),
]


ListedName = Annotated[str, Field(min_length=1, max_length=_NAME_LENGTH_LIMIT)]


class WirePart(Part):
    """A document of the service alone, built when the server starts."""

    model_config = ConfigDict(defer_build=False)


# what is written where people read it: no control characters, which not every database keeps
HolderName = Annotated[
    str,
    Field(min_length=1, max_length=_NAME_LENGTH_LIMIT, pattern=r"^[^\x00-\x1f\x7f]*$"),
]


_EXAMPLE: JsonDict = {
    "model": "llama-3-8b",
    "cluster": "8xh100-sxm5-80gb",
    "job": {"global_batch_size": 512, "sequence_length": 8192},
}


class PlanRequest(WirePart):
    """What to plan."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    model: ModelReference
    cluster: ClusterReference
    job: Job = Job()


class EstimateRequest(PlanRequest):
    """What to price."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{**_EXAMPLE, "strategy": {"tensor_parallel_degree": 8}}],
        }
    )

    strategy: Strategy


class PlanLabelsChange(PlanLabels):
    """New labels: fields that are left out stay as they are, and each tag is kept once."""

    model_config = ConfigDict(
        defer_build=False,
        json_schema_extra={
            "examples": [{"name": "8B, batch 512", "notes": "For the March run.", "tags": ["8b"]}]
        },
    )

    def applied_to(self, labels: PlanLabels) -> PlanLabels:
        """Return `labels` with this change made."""
        changed = {name: getattr(self, name) for name in self.model_fields_set}
        if "tags" in changed:
            changed["tags"] = tuple(dict.fromkeys(self.tags))
        return labels.model_copy(update=changed)


class PlanQuery(WirePart):
    """Which plans to list; what is left out matches all.

    Each word of `text` must occur in a plan's name, model, cluster, strategy, id, tags, notes or
    owner.
    """

    model: ListedName | None = None
    cluster: ListedName | None = None
    status: Literal["planned", "infeasible"] | None = None
    text: Annotated[str | None, Field(max_length=_NAME_LENGTH_LIMIT)] = None
    tag: PlanTag | None = None
    cursor: Annotated[str | None, Field(max_length=64)] = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20


class OperationEvent(WirePart):
    """One event of an operation's stream, numbered from 1."""

    number: int
    kind: Literal["state", "progress"]
    data: str


class ApiKeyRequest(WirePart):
    """A key to be made, of the caller's own project."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"name": "ci", "scopes": ["read", "plan"], "expires_in_days": 90}]
        }
    )

    name: HolderName
    scopes: Annotated[tuple[Scope, ...], Field(min_length=1, max_length=4)]
    expires_in_days: Annotated[int | None, Field(ge=1, le=3650)] = None


class KeyQuery(WirePart):
    """Which keys to list: all, or those alone that let somebody in now."""

    usable: bool = False
    cursor: Annotated[str | None, Field(max_length=128)] = None
    limit: Annotated[int, Field(ge=1, le=100)] = 100


class ApiKey(WirePart):
    """A key without its secret; `prefix` is how it begins."""

    id: str
    project: str
    name: str
    prefix: str
    scopes: tuple[Scope, ...]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class NewApiKey(ApiKey):
    """A key that was just made; nobody can read `key` a second time."""

    key: str


class ApiKeyList(WirePart):
    """Keys of a project, the oldest first; `next_cursor` asks for the ones after them."""

    items: tuple[ApiKey, ...]
    next_cursor: str | None


class CallerInfo(WirePart):
    """Who asks, as the service understands it."""

    project: str
    name: str
    scopes: tuple[Scope, ...]
    key_id: str | None


class AuditQuery(WirePart):
    """Which entries of the audit log to list: of an action, of a key, about a subject."""

    action: Annotated[str | None, Field(pattern=r"^[a-z_.-]{1,64}$")] = None
    key_id: Identifier | None = None
    subject: ListedName | None = None
    cursor: Annotated[str | None, Field(max_length=64)] = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20


class AuditEvent(WirePart):
    """Who did what to what; entries are never changed."""

    number: int
    at: datetime
    actor: str
    key_id: str | None
    action: str
    subject: str
    request_id: str | None
    details: dict[str, JsonValue]


class AuditPage(WirePart):
    """Some entries, newest first; `next_cursor` asks for the ones after them."""

    items: tuple[AuditEvent, ...]
    next_cursor: str | None


class KnownModel(WirePart):
    """A model that can be named in a request."""

    name: str


class KnownDevice(WirePart):
    """A device that can be named in a cluster, with what its profile says of it."""

    name: str
    memory_bytes: float
    devices_per_node: int | None
    price_per_device_hour: float | None


class ModelList(WirePart):
    """The models that can be named."""

    items: tuple[KnownModel, ...]


class DeviceList(WirePart):
    """The devices that can be named."""

    items: tuple[KnownDevice, ...]


class Health(WirePart):
    """The process answers."""

    status: Literal["ok", "ready"]
