"""Environment: what the launcher tells its ranks, and the names it uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from executor.device_choice import chosen_device, visible_devices
from executor.errors import LaunchError
from executor.timeouts import Timeouts
from executor.variables import (
    CHECKPOINT_FOLDER,
    CHECKPOINT_STEPS,
    COMPILER,
    DEBUG,
    DEVICE_TYPE,
    LAUNCHER_PROCESS,
    METRICS_PATH,
    OUTCOME_DIRECTORY,
    PLAN_PATH,
    RESUME,
    START_TIMEOUT_SECONDS,
    STEP_COUNT,
    STEP_LIMIT,
    TIMEOUT_SECONDS,
)
from planner.schema.plan import Plan
from planner.schema.strategy import Strategy

__all__ = [
    "CHECKPOINT_FOLDER",
    "CHECKPOINT_STEPS",
    "COMPILER",
    "DEBUG",
    "DEFAULT_STEP_COUNT",
    "DEFAULT_TIMEOUT_SECONDS",
    "DEVICE_TYPE",
    "LAUNCHER_PROCESS",
    "METRICS_PATH",
    "OUTCOME_DIRECTORY",
    "PLAN_PATH",
    "RESUME",
    "START_TIMEOUT_SECONDS",
    "STEP_COUNT",
    "TIMEOUT_SECONDS",
    "RankEnvironment",
]
DEFAULT_STEP_COUNT = 20
_VISIBLE_DEVICES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
DEFAULT_TIMEOUT_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEnvironment:
    """The plan's path and this rank's place; a run ends after `step_limit` steps at the latest.

    How many ranks its node has, `local_world_size`, some launchers do not say. Where one has named
    the devices that a process may see, a rank that sees one has it for itself.
    """

    plan_path: str
    rank: int
    local_rank: int
    local_world_size: int | None
    world_size: int
    device_type: str | None
    timeouts: Timeouts
    step_limit: int | None = None
    names_devices: bool = False

    @staticmethod
    def read(variables: Mapping[str, str]) -> RankEnvironment:
        """Return what the launcher has set.

        Raises:
            LaunchError: naming the first variable that is missing, or is no limit of steps.
        """
        return RankEnvironment(
            plan_path=_variable(variables, PLAN_PATH),
            rank=int(_variable(variables, "RANK")),
            local_rank=int(_variable(variables, "LOCAL_RANK")),
            local_world_size=_local_world_size(variables),
            world_size=int(_variable(variables, "WORLD_SIZE")),
            device_type=variables.get(DEVICE_TYPE),
            timeouts=_timeouts(variables),
            step_limit=_step_limit(variables),
            names_devices=LAUNCHER_PROCESS not in variables
            and any(map(variables.get, _VISIBLE_DEVICES)),
        )

    def device(self, plan: Plan) -> torch.device:
        """Return the device of this rank.

        A launcher that is not ours names none: it is what the plan's cluster is made of.

        Raises:
            LaunchError: if this machine has not the devices.
        """
        local_ranks, index = self.local_world_size or self.local_rank + 1, self.local_rank
        if self.names_devices and visible_devices() == 1:
            local_ranks, index = 1, 0
        kind = chosen_device(plan, self.device_type, local_ranks=local_ranks)
        return torch.device("cpu") if kind == "cpu" else torch.device(kind, index)

    def check_world(self, strategy: Strategy) -> None:
        """Return if the launcher started as many ranks as the plan has.

        Raises:
            LaunchError: if it did not.
        """
        if strategy.world_size != self.world_size:
            raise LaunchError(
                f"the plan's degrees multiply to {strategy.world_size} ranks",
                field="WORLD_SIZE",
                value=self.world_size,
                remedy=f"launch {strategy.world_size} ranks, or plan for {self.world_size}",
            )


def _timeouts(variables: Mapping[str, str]) -> Timeouts:
    step = float(variables.get(TIMEOUT_SECONDS, DEFAULT_TIMEOUT_SECONDS))
    return Timeouts(
        step_seconds=step, start_seconds=float(variables.get(START_TIMEOUT_SECONDS, step))
    )


def _local_world_size(variables: Mapping[str, str]) -> int | None:
    """Return how many ranks this node has: as torchrun says it, else Slurm of a step of tasks."""
    said = variables.get("LOCAL_WORLD_SIZE") or variables.get("SLURM_NTASKS_PER_NODE")
    return int(said) if said and said.isdecimal() else None


def _step_limit(variables: Mapping[str, str]) -> int | None:
    given = variables.get(STEP_LIMIT)
    if given is None:
        return None
    if not given.isdecimal() or int(given) < 1:
        raise LaunchError(
            "is not a number of steps",
            field=STEP_LIMIT,
            value=given,
            remedy="set it to a whole number from 1 on, or leave it unset",
        )
    return int(given)


def _variable(variables: Mapping[str, str], name: str) -> str:
    value = variables.get(name)
    if value is None:
        raise LaunchError(
            "is not set, so this process is no rank of a launched plan",
            field=name,
            remedy="start the script with `python -m executor.launcher PLAN.json -- SCRIPT`",
        )
    return value
