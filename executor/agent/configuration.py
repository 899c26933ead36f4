"""Configuration: what this node's operator allows and says of it, in one TOML file."""

from __future__ import annotations

import re
import socket
import tomllib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError, field_validator

from executor.agent.errors import AgentError
from planner.schema.agent import PATTERN_LENGTH_LIMIT, Address, CommandName
from planner.schema.document import Name, Part, document_error

# What a value may be that no pattern is given for: no option, no path upwards, nothing quoted.
PLAIN_VALUE = r"[A-Za-z0-9_][A-Za-z0-9_.,:=+-]*"
Port = Annotated[int, Field(ge=1, le=65_535)]


class ArgumentRule(Part):
    """A value that a run may give: all of it must match `pattern`.

    `default` stands where it is left out; without one a run has to give it.
    """

    pattern: Annotated[str, Field(max_length=PATTERN_LENGTH_LIMIT)] = PLAIN_VALUE
    default: str | int | float | bool | None = None

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"is not a regular expression: {error}") from None
        return pattern


class CommandTemplate(Part):
    """A command that runs may name. Each element of `argv` becomes one argument of a process.

    Braces name what is filled in: `{launcher}` (as an element of its own) starts the plan's ranks
    of this node, `{python}`, `{plan}`, `{report}`, `{checkpoint}`, `{resume}`, `{run}`,
    `{attempt}`, `{epoch}`, `{node_rank}`, `{node_count}`, `{local_ranks}`, `{master_address}`,
    `{master_port}`, and the names under `arguments`. A command that is stopped is asked to end by
    SIGTERM, so that it can save, and killed after `grace_seconds`.
    """

    argv: Annotated[tuple[str, ...], Field(min_length=1, max_length=200)]
    arguments: Annotated[dict[Name, ArgumentRule], Field(max_length=100)] = Field(
        default_factory=dict
    )
    environment: dict[Name, str] = Field(default_factory=dict)
    directory: str | None = None
    grace_seconds: Annotated[float, Field(ge=0, le=3600)] = 30.0


class Devices(Part):
    """Which devices runs may use: `auto` takes GPUs where the driver shows any, else the CPU.

    `count` is how many (ranks, on a CPU); `profile` is the planner's name of the kind.
    """

    kind: Literal["auto", "cuda", "cpu"] = "auto"
    count: Annotated[int, Field(ge=1, le=1024)] | None = None
    profile: Name | None = None


class Slurm(Part):
    """How runs are submitted instead of launched: to how many nodes at most, with which options."""

    nodes: Annotated[int, Field(ge=1, le=2**17)]
    options: Annotated[tuple[str, ...], Field(max_length=100)] = ()
    poll_seconds: Annotated[float, Field(gt=0, le=300)] = 5.0


class AgentConfiguration(Part):
    """Where the server is, what this node is called, where its files go, what it may run."""

    server: Annotated[str, Field(pattern=r"^https?://[^\s/]+(/\S*)?$")]
    name: Name = Field(default_factory=socket.gethostname)
    address: Address = "127.0.0.1"
    ports: tuple[Port, Port] = (29_400, 29_499)
    location: Annotated[tuple[Name, ...], Field(max_length=8)] = ()
    work_folder: Path = Path("~/.meshwright/agent")
    token_file: Path | None = None
    checkpoint_folder: Path | None = None
    devices: Devices = Devices()
    commands: Annotated[dict[CommandName, CommandTemplate], Field(min_length=1, max_length=100)]
    slurm: Slurm | None = None

    @property
    def folder(self) -> Path:
        """Return where runs and the token lie."""
        return self.work_folder.expanduser().absolute()

    @property
    def token_path(self) -> Path:
        """Return the file that holds this agent's token."""
        return (self.token_file or self.folder / "token.json").expanduser().absolute()

    @property
    def checkpoints(self) -> Path:
        """Return the folder of all runs' checkpoints, which nodes of one run share."""
        return (self.checkpoint_folder or self.folder / "checkpoints").expanduser().absolute()


def read_configuration(path: Path) -> AgentConfiguration:
    """Return the configuration in a TOML file.

    Raises:
        AgentError: naming the first field that is wrong.
    """
    try:
        fields = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise AgentError(
            "no such file",
            field=str(path),
            remedy="write one, or let `meshwright agent run --server URL --token TOKEN` do it",
        ) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise AgentError(
            f"cannot be read: {error}", field=str(path), remedy="correct the TOML file"
        ) from None
    try:
        return AgentConfiguration.model_validate(fields)
    except ValidationError as error:
        found = document_error(error, source=str(path))
        raise AgentError(
            found.problem, field=found.field, value=found.value, remedy=found.remedy
        ) from None


STARTER = """\
# What this node's Meshwright agent may do. docs/operations.md explains every line.
server = "{server}"
name = "{name}"
# By which address other nodes of a run reach this one, and on which ports.
address = "{address}"
ports = [29400, 29499]
work_folder = "{work_folder}"
# Nodes of one run must share the folder of checkpoints.
# checkpoint_folder = "/shared/meshwright/checkpoints"

[devices]
kind = "auto"
{devices}
# A run names a command; it can fill in the arguments that are declared here, and nothing else.
[commands.train]
argv = ["{{launcher}}", "--steps", "{{steps}}"]
environment = {{ MESHWRIGHT_CHECKPOINT_STEPS = "{{checkpoint_steps}}" }}

[commands.train.arguments]
steps = {{ default = 20, pattern = "[0-9]{{1,7}}" }}
checkpoint_steps = {{ default = 10, pattern = "[0-9]{{1,7}}" }}

# Your own training:
# [commands.pretrain]
# argv = ["{{launcher}}", "--", "/opt/training/train.py", "--checkpoint", "{{checkpoint}}"]
"""
