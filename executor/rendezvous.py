"""Rendezvous: how the launchers of a plan's nodes meet, and which ranks each of them starts.

On one node torch's c10d rendezvous finds a free port. On several it would number nodes as they
come; ranks must lie where the plan wants them, so that place and address are given: static.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.launcher.api import LaunchConfig

from executor.errors import LaunchError

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlace:
    """Which of the plan's nodes this is, and where the first of them listens."""

    node_rank: int = 0
    node_count: int = 1
    local_rank_count: int | None = None
    master_address: str = LOOPBACK
    master_port: int = 0
    meeting: str = ""

    def local_ranks(self, world_size: int) -> int:
        """Return how many of the plan's ranks this node starts.

        Raises:
            LaunchError: if the place cannot be one of this plan's.
        """
        if not 0 <= self.node_rank < self.node_count:
            raise LaunchError(
                f"nodes are numbered from 0 to {self.node_count - 1}",
                field="node-rank",
                value=self.node_rank,
                remedy="give each node a number of its own",
            )
        if self.node_count > 1 and self.master_port == 0:
            raise LaunchError(
                "several nodes meet at an address and a port",
                field="master",
                value=f"{self.master_address}:{self.master_port}",
                remedy="give --master ADDRESS:PORT of the first node, the same on every node",
            )
        if self.local_rank_count is None and world_size % self.node_count:
            raise LaunchError(
                f"the plan has {world_size} ranks, which is no multiple of the nodes",
                field="nodes",
                value=self.node_count,
                remedy="say how many are started here with --local-ranks",
            )
        return self.local_rank_count or world_size // self.node_count


def launch_config(
    place: NodePlace, *, local_ranks: int, meeting_seconds: float, log_directory: Path
) -> LaunchConfig:
    """Return what torch's launcher needs to start this node's ranks.

    The launchers of several nodes wait `meeting_seconds` for one another.
    """
    is_alone = place.node_count == 1
    endpoint = f"{LOOPBACK}:0" if is_alone else f"{place.master_address}:{place.master_port}"
    settings = {} if is_alone else {"rank": place.node_rank, "timeout": int(meeting_seconds)}
    return LaunchConfig(
        min_nodes=place.node_count,
        max_nodes=place.node_count,
        nproc_per_node=local_ranks,
        run_id=place.meeting or uuid.uuid4().hex,
        rdzv_backend="c10d" if is_alone else "static",
        rdzv_endpoint=endpoint,
        rdzv_configs=settings,
        local_addr=LOOPBACK if is_alone else None,
        max_restarts=0,
        signals_to_handle="SIGINT,SIGHUP,SIGQUIT",  # at SIGTERM ranks end after their step
        logs_specs=DefaultLogsSpecs(log_dir=str(log_directory)),
    )
