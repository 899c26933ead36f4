"""Guards: what keeps runs whole, each with the text that takes it away and what notices that."""

from __future__ import annotations

from dataclasses import dataclass

_LEASES = "tests/contract/api/test_leases.py::"
_RUNS = "tests/contract/api/test_runs.py::"
_KEEPER = "tests/unit/executor_agent/test_keeper.py::"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """A guard that stands in `path` as `old`; with `new` in its place it is missing.

    Either a `test` must fail then, or a round with `fault` must lose something.
    """

    protects: str
    path: str
    old: str
    new: str
    test: str = ""
    fault: str = ""

    def removed_from(self, source: str) -> str:
        """Return `source` without it.

        Raises:
            ValueError: if it does not stand there once.
        """
        if source.count(self.old) != 1:
            raise ValueError(f"{self.path} has {source.count(self.old)} times: {self.old}")
        return source.replace(self.old, self.new)


GUARDS: tuple[Guard, ...] = (
    Guard(
        protects="a stale epoch writes nothing",
        path="api/services/leases.py",
        old="if epoch != lease.epoch or epoch != run.epoch:",
        new="if False:",
        test=_LEASES + "test_what_names_another_epoch_is_stale_and_writes_nothing",
    ),
    Guard(
        protects="a lease that is over writes nothing",
        path="api/services/leases.py",
        old="if lease.ended_at is not None:",
        new="if False:",
        test=_LEASES + "test_a_lost_lease_writes_nothing_any_more",
    ),
    Guard(
        protects="a line that comes twice is stored once",
        path="api/services/leases.py",
        old="return content[known:].decode()",
        new="return content.decode()",
        test=_LEASES + "test_a_log_is_stored_once_whatever_comes_twice_or_overlaps",
    ),
    Guard(
        protects="a piece of a log that was overtaken leaves no gap",
        path="api/services/leases.py",
        old="if known < 0:",
        new="if False:",
        test=_LEASES + "test_logs_in_any_order_end_up_whole_when_sent_from_what_is_acknowledged",
    ),
    Guard(
        protects="a row that comes twice is stored once",
        path="api/services/leases.py",
        old="fresh = chunk.rows[known_count:] if known_count >= 0 else ()",
        new="fresh = chunk.rows",
        test=_LEASES + "test_metrics_are_stored_once_in_order",
    ),
    Guard(
        protects="a result is put once",
        path="api/services/leases.py",
        old="if lease.result_digest is not None:",
        new="if False:",
        test=_LEASES + "test_a_result_is_put_once",
    ),
    Guard(
        protects="a heartbeat that was overtaken takes nothing back",
        path="planner/schema/lifecycle.py",
        old="return reported if _PROGRESS[reported] > _PROGRESS[held] else held",
        new="return reported",
        test=_LEASES + "test_heartbeats_go_only_forwards",
    ),
    Guard(
        protects="a gang is leased whole or not at all",
        path="api/services/placement.py",
        old="if sum(assignment.rank_count for assignment in placed) < need.rank_count:",
        new="if not placed:",
        test=_LEASES + "test_a_run_on_two_nodes_is_not_leased_to_one",
    ),
    Guard(
        protects="nobody launches before all of the gang are ready",
        path="api/services/leases.py",
        old="and all(lease.state == LeaseState.READY for lease in leases)",
        new="and any(lease.state == LeaseState.READY for lease in leases)",
        test=_LEASES + "test_nobody_launches_before_all_are_ready",
    ),
    Guard(
        protects="no epoch begins while a lease of the last is live",
        path="api/services/run_moves.py",
        old="if any(lease.ended_at is None for lease in leases):",
        new="if False:",
        test=_RUNS + "test_a_failed_rank_has_the_gang_started_again_from_its_checkpoint",
    ),
    Guard(
        protects="two that lease at once do not lease one agent twice",
        path="api/db.py",
        old='connection.exec_driver_sql("BEGIN IMMEDIATE")',
        new='connection.exec_driver_sql("BEGIN")',
        test=_LEASES + "test_claims_at_once_by_several_processes_lease_nothing_twice",
    ),
    Guard(
        protects="a service that was away lets no lease expire at once",
        path="api/services/sweeper.py",
        old="if self._watch.has_lasted(self._needed_seconds(lease)):",
        new="if True:",
        test=_LEASES + "test_a_service_that_just_started_lets_no_lease_expire",
    ),
    Guard(
        protects="a command is started once, whoever takes the lease up",
        path="executor/agent/run_folder.py",
        old='if (self.path / "keeper.json").exists():',
        new="if False:",
        test=_KEEPER + "test_another_agent_takes_up_what_runs_and_starts_nothing_twice",
    ),
    Guard(
        protects="without an agent too, processes in sessions of their own are ended",
        path="executor/agent/keeper.py",
        old="end_all(os.environ[TAG], grace_seconds=grace, is_late=self._is_lost)",
        new="child.kill()",
        test=_KEEPER + "test_when_the_lease_runs_out_the_keeper_ends_all_without_an_agent",
    ),
    Guard(
        protects="a line is kept by its agent until it is acknowledged",
        path="executor/agent/uploads.py",
        old="self._spool.log_acknowledged(self._client.log(lease.id, chunk))",
        new="(self._spool.log_acknowledged(piece.end), self._client.log(lease.id, chunk))",
        fault="network cut",
    ),
    Guard(
        protects="a line that is acknowledged is stored",
        path="api/services/leases.py",
        old="MeasurementRepository(session).add_log(row)",
        new="pass",
        fault="nothing",
    ),
    Guard(
        protects="an agent that is not heard of ends its ranks before others start theirs",
        path="executor/agent/run_folder.py",
        old='return float((self.path / "until").read_text()) - machine_seconds()',
        new="return 1e9",
        fault="network cut for long",
    ),
    Guard(
        protects="an agent measures silence by a clock that is never set",
        path="executor/agent/run_folder.py",
        old="return time.clock_gettime(time.CLOCK_BOOTTIME)",
        new="return time.time()",
        fault="network cut, agent's clock set",
    ),
    Guard(
        protects="a clock set ahead lets no lease expire",
        path="api/services/sweeper.py",
        old="self._watch.compare(at, before=before, after=after)",
        new="pass",
        fault="network cut, server's clock set",
    ),
    Guard(
        protects="a clock set back prolongs no lease",
        path="api/repositories/leases.py",
        old="untrue = or_(LeaseRow.expires_at < at, LeaseRow.expires_at > at + longest)",
        new="untrue = or_(LeaseRow.expires_at < at)",
        fault="node lost, server's clock set back",
    ),
)
