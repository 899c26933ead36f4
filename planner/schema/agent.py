"""Agent: what a node's agent says of itself, and what it is told when it enrols."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from planner.schema.document import Count, Document, Flag, Name, Part, PositiveCount

Token = Annotated[str, Field(min_length=16, max_length=200, pattern=r"^[\x21-\x7e]+$")]
Identifier = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
CommandName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,100}$")]
Address = Annotated[str, Field(pattern=r"^[A-Za-z0-9._:\[\]-]{1,253}$")]
PATTERN_LENGTH_LIMIT = 2000
BODY = ConfigDict(defer_build=False)  # of requests: built when the server starts
MemoryBytes = Annotated[int, Field(ge=0, le=2**50)]
Moment = Annotated[float, Field(gt=0, le=86_400)]


class AgentDevice(Part):
    """One device. `name` is the driver's; `profile` the planner's, where the agent was told it.

    A plan for `h100-sxm5-80gb` is placed on devices whose `profile` is that, or whose `name` is
    known to mean it.
    """

    index: Count
    name: Name
    profile: Name | None = None
    memory_bytes: MemoryBytes | None = None
    uuid: Name | None = None


class AgentTopology(Part):
    """Where the node stands, outermost first (`["row-2", "rack-7"]`), and how its devices connect.

    Agents with equal beginnings of `location` are placed side by side. `links` is the driver's
    matrix (`nvidia-smi topo`), row by row, for people to read.
    """

    location: Annotated[tuple[Name, ...], Field(max_length=8)] = ()
    links: Annotated[tuple[tuple[Name, ...], ...], Field(max_length=64)] = ()


class AgentVersions(Part):
    """What is installed; what is not is null."""

    agent: Name
    python: Name | None = None
    torch: Name | None = None
    cuda: Name | None = None
    nccl: Name | None = None
    driver: Name | None = None


class CommandArgument(Part):
    """A value that a run may give to a command: all of its text matches `pattern`.

    Patterns are Python's regular expressions. A run has to give what is `required`.
    """

    pattern: Annotated[str, Field(max_length=PATTERN_LENGTH_LIMIT)]
    required: Flag


class AgentReport(Document):
    """What an agent offers.

    `address` is where other nodes reach it for the rendezvous of a run. `commands` are the names
    that its own configuration allows: it is given no other. `arguments` says what each of them
    accepts; of a command that it leaves out nothing is known. `node_count` is 1, or for an agent
    that submits to a scheduler, how many nodes with these devices it may ask for.
    `host_memory_bytes` is the node's own memory.
    """

    model_config = BODY

    name: Name
    address: Address
    devices: Annotated[tuple[AgentDevice, ...], Field(min_length=1, max_length=1024)]
    host_memory_bytes: MemoryBytes | None = None
    topology: AgentTopology = Field(default_factory=AgentTopology)
    versions: AgentVersions
    commands: Annotated[tuple[CommandName, ...], Field(min_length=1, max_length=100)]
    arguments: Annotated[
        dict[CommandName, Annotated[dict[Name, CommandArgument], Field(max_length=100)]],
        Field(max_length=100),
    ] = Field(default_factory=dict)
    launcher: Literal["local", "slurm"] = "local"
    node_count: Annotated[PositiveCount, Field(le=2**17)] = 1


class Intervals(Part):
    """How often agents speak and how long silence may last, as the service wants it now.

    An agent polls for leases with `wait=poll_seconds`, sends a heartbeat every
    `heartbeat_seconds` and what it has buffered every `flush_seconds`. A lease is lost
    `lease_seconds` after the last heartbeat that the service received, by the service's clock. So
    that two never run the same, an agent kills its ranks `give_up_seconds` after it *sent* the last
    heartbeat that was answered, by its own monotonic clock; that is always the shorter one.
    """

    poll_seconds: Moment
    heartbeat_seconds: Moment
    flush_seconds: Moment
    lease_seconds: Moment
    give_up_seconds: Moment


class EnrolmentRequest(AgentReport):
    """An agent's first words: its one-time token beside its report."""

    enrolment_token: Token


class Enrolment(Part):
    """The answer to an enrolment. `token` is shown this once: only its hash is kept."""

    agent_id: str
    token: str
    intervals: Intervals


class EnrolmentTokenRequest(Part):
    """A token to be made: for whom, and how long it may be used."""

    model_config = BODY

    note: Annotated[str, Field(max_length=200)] = ""
    valid_seconds: Annotated[float, Field(gt=0, le=30 * 86_400)] = 3600.0


class EnrolmentToken(Part):
    """A one-time token. `token` is shown this once: only its hash is kept."""

    id: str
    token: str
    note: str
    expires_at: datetime


class Agent(Part):
    """An agent as the service knows it.

    `idle`: it waits for a lease. `busy`: it holds one. `away`: nothing was heard of it for longer
    than it may be silent; it is used again as soon as it polls.
    """

    id: str
    state: Literal["idle", "busy", "away"]
    report: AgentReport
    enrolled_at: datetime
    last_seen_at: datetime
    lease_id: str | None = None
    run_id: str | None = None


class AgentPage(Part):
    """Some agents, by name; `next_cursor` asks for the ones after them."""

    items: tuple[Agent, ...]
    next_cursor: str | None
