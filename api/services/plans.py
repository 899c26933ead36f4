"""Plans: asked for, listed, read, compared, removed."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache

from pydantic import JsonValue
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool

from api.caller import Caller
from api.cursors import cursor, position
from api.db import Database, settled
from api.errors import (
    ChangedMeanwhileError,
    FailedSolveError,
    KeyReusedError,
    NoStrategyError,
    NotFoundError,
    NotOwnerError,
)
from api.repositories.audit import AuditRepository
from api.repositories.operations import OperationRepository
from api.repositories.plan_table import plan_changes
from api.repositories.plans import IdempotencyKeyRepository, PlanRepository, kept_plan
from api.schemas import PlanLabelsChange, PlanQuery, PlanRequest
from api.services.operations import OperationService
from api.services.plan_table import as_kept
from api.services.planner import Planner
from api.services.records import (
    StoredPlan,
    column_text,
    label,
    labels_tag,
    stored_plan,
    summary_of,
    title_of,
)
from api.services.requests import resolved_request
from api.services.solves import Solves
from api.table_query import TableQuery
from api.tables import OperationRow
from planner.answers.comparison import Comparison, compare
from planner.errors import InputError, SolveCancelledError
from planner.schema.plan import Infeasible, Plan
from planner.schema.service import Operation, OperationState, PlanLabels, PlanPage, PlanSummary

DEFAULT_WAIT_SECONDS = 2.0
COMPARED_PLANS_LIMIT = 6
# A page of a hundred plans has about 100 kB.
_REMEMBERED_PAGES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The answer to a request, and whether the request is what it was made for."""

    plan: StoredPlan
    is_new: bool


class PlanService:
    """What can be asked about plans."""

    def __init__(
        self, database: Database, planner: Planner, solves: Solves, operations: OperationService
    ) -> None:
        self._database = database
        self._planner = planner
        self._solves = solves
        self._operations = operations
        self._remembered = lru_cache(maxsize=_REMEMBERED_PAGES)(self._page_json)

    def list_json(self, caller: Caller, query: PlanQuery) -> str:
        """Return the same as `list` as JSON, remembered until the project's plans change.

        Raises:
            InputError: if the cursor is none of ours.
        """
        with self._database.looking_up() as connection:
            changes = plan_changes(connection, caller.project_id)
        return self._remembered(caller.project_id, changes, query)

    def list(self, caller: Caller, query: PlanQuery | None = None) -> PlanPage:
        """Return a page of the project's plans, the newest first.

        Raises:
            InputError: if the cursor is none of ours.
        """
        return self._page(caller.project_id, query or PlanQuery())

    def _page_json(self, project_id: str, _changes: int, query: PlanQuery) -> str:
        return self._page(project_id, query).model_dump_json()

    def _page(self, project_id: str, query: PlanQuery) -> PlanPage:
        before = None if query.cursor is None else position(query.cursor)
        wanted = as_kept(
            TableQuery(
                text=query.text or "",
                tag=query.tag,
                model=query.model,
                cluster=query.cluster,
                status=query.status,
            )
        )
        with self._database.reading() as session:
            rows = PlanRepository(session, project_id).page(
                wanted, before=before, limit=query.limit + 1
            )
        page = rows[: query.limit]
        more = cursor(page[-1].sequence) if len(rows) > query.limit else None
        return PlanPage(items=tuple(summary_of(row) for row in page), next_cursor=more)

    def get(self, caller: Caller, plan_id: str) -> StoredPlan:
        """Return the plan, or the infeasible answer, with that id.

        Raises:
            NotFoundError: if the caller's project has none.
        """
        with self._database.looking_up() as connection:
            row = kept_plan(connection, caller.project_id, column_text(plan_id))
        if row is None:
            raise NotFoundError("plan", plan_id)
        return stored_plan(row)

    def planned(self, caller: Caller, plan_id: str) -> Plan:
        """Return the plan with that id.

        Raises:
            NotFoundError: if the caller's project has none.
            NoStrategyError: if it is an infeasible answer, of which there is nothing more to show.
        """
        return planned_answer(self.get(caller, plan_id))

    def warnings(self, caller: Caller, plan_id: str) -> tuple[str, ...]:
        """Return the warnings of the answer with that id; none where it is gone."""
        try:
            return self.get(caller, plan_id).answer.warnings
        except NotFoundError:
            return ()

    def titles(self, caller: Caller, plan_ids: Collection[str]) -> dict[str, str]:
        """Return what people call each of these plans, by id; those that are gone are left out."""
        with self._database.reading() as session:
            found = PlanRepository(session, caller.project_id).summaries(set(plan_ids))
        summaries = (PlanSummary.model_validate_json(each) for each in found)
        return {summary.id: title_of(summary) for summary in summaries}

    def label(
        self,
        caller: Caller,
        plan_id: str,
        change: PlanLabelsChange,
        *,
        if_match: str | None = None,
    ) -> PlanLabels:
        """Change the name, notes and tags of the plan; return what they are now.

        `if_match` has the tags of the labels that the change was made from; without it, any.

        Raises:
            NotFoundError: if the caller's project has no such plan.
            ChangedMeanwhileError: if the labels are others than those.
        """
        with self._database.writing() as session:
            plans = PlanRepository(session, caller.project_id)
            row = plans.locked(column_text(plan_id))
            if row is None:
                raise NotFoundError("plan", plan_id)
            before = stored_plan(row).labels
            if if_match is not None and not _names(if_match, labels_tag(before)):
                raise ChangedMeanwhileError("labels")
            after = change.applied_to(before)
            if after != before:
                label(row, after)
                plans.tag(row.id, after.tags)
                changed: list[JsonValue] = [
                    name
                    for name in PlanLabels.model_fields
                    if getattr(after, name) != getattr(before, name)
                ]
                AuditRepository(session).add(
                    caller, action="plan.label", subject=plan_id, details={"fields": changed}
                )
        return after

    def delete(self, caller: Caller, plan_id: str) -> None:
        """Remove the plan, as its owner or as an administrator; one of nobody's, as anybody.

        Raises:
            NotFoundError: if the caller's project has none.
            NotOwnerError: if it is another's.
        """
        with self._database.writing() as session:
            plans = PlanRepository(session, caller.project_id)
            row = plans.locked(column_text(plan_id))
            if row is None:
                raise NotFoundError("plan", plan_id)
            owner = summary_of(row).owner
            if owner is not None and not caller.may_delete(owner):
                raise NotOwnerError("plan", plan_id, owner=owner)
            plans.delete(row.id)
            AuditRepository(session).add(caller, action="plan.delete", subject=plan_id)

    def compare(self, caller: Caller, plan_ids: Sequence[str]) -> Comparison:
        """Return what differs between two to six plans; the first is the baseline.

        Raises:
            NotFoundError: if one of them does not exist.
            InputError: if there are too few, too many, or one is an infeasible answer.
        """
        if not 2 <= len(plan_ids) <= COMPARED_PLANS_LIMIT:
            raise InputError(
                f"a comparison takes 2 to {COMPARED_PLANS_LIMIT} plans",
                field="plan",
                value=f"{len(plan_ids)} plans",
                remedy="name each as ?plan=ID&plan=ID",
            )
        stored = [self.get(caller, plan_id) for plan_id in plan_ids]
        found = compare([planned_answer(each) for each in stored])
        named = tuple(
            plan.model_copy(update={"name": each.labels.name})
            for plan, each in zip(found.plans, stored, strict=True)
        )
        return found.model_copy(update={"plans": named})

    async def submit(
        self,
        caller: Caller,
        request: PlanRequest,
        *,
        idempotency_key: str | None = None,
        wait_seconds: float = DEFAULT_WAIT_SECONDS,
    ) -> Answered | Operation:
        """Return the plan for `request` if it is known or found within the wait.

        Otherwise the operation that still looks for it.
        Equal requests of a project share one solve and one plan.

        Raises:
            InputError: if the request is bad, also where only the solve can tell.
            KeyReusedError: if the key stands for another request.
            BusyError: if too many solves wait.
            FailedSolveError: if the solve failed within the wait.
            SolveCancelledError: if it was cancelled within the wait.
        """
        begun = await run_in_threadpool(self._begin, caller, request, idempotency_key)
        if isinstance(begun, StoredPlan):
            return Answered(plan=begun, is_new=False)
        operation = await self._operations.finished(caller, begun, wait_seconds=wait_seconds)
        if operation.state is OperationState.RUNNING:
            return operation
        return await run_in_threadpool(self._outcome, caller, operation)

    def _outcome(self, caller: Caller, operation: Operation) -> Answered:
        if operation.plan_id is not None:
            return Answered(plan=self.get(caller, operation.plan_id), is_new=True)
        if operation.problem is not None:
            raise FailedSolveError(operation.id, operation.problem)
        raise SolveCancelledError("the solve was cancelled")

    def _begin(
        self, caller: Caller, request: PlanRequest, idempotency_key: str | None
    ) -> StoredPlan | str:
        """Return the known plan, or the id of the operation that looks for it."""
        resolved = resolved_request(self._planner, request)
        digest = resolved.digest
        if idempotency_key is None:
            known = self._known(caller, digest)
            if known is not None:
                return known
        found, is_ours = settled(lambda: self._claim(caller, digest, idempotency_key))
        if is_ours and isinstance(found, str):
            self._solves.start(found, resolved, owner=caller.owner)
        return found

    def _known(self, caller: Caller, digest: str) -> StoredPlan | None:
        """Return the plan for the digest without the lock that writing takes."""
        with self._database.reading() as session:
            plan = PlanRepository(session, caller.project_id).answering(digest)
        return None if plan is None else stored_plan(plan)

    def _claim(
        self, caller: Caller, digest: str, idempotency_key: str | None
    ) -> tuple[StoredPlan | str, bool]:
        """Return the plan or operation for the digest, and whether the operation is a new one."""
        with self._database.writing() as session:
            if idempotency_key is not None:
                _claim_key(session, caller, idempotency_key, digest)
            plan = PlanRepository(session, caller.project_id).answering(digest)
            if plan is not None:
                return stored_plan(plan), False
            operations = OperationRepository(session)
            running = operations.solving(digest, project_id=caller.project_id)
            if running is not None:
                return running.id, False
            self._solves.check_capacity()
            row = self._new_operation(caller, digest)
            operations.add(row)
            operations.add_event(row.id, kind="state", data='{"state": "running"}')
            AuditRepository(session).add(
                caller, action="plan.request", subject=row.id, details={"request": digest}
            )
            return row.id, True

    def _new_operation(self, caller: Caller, digest: str) -> OperationRow:
        return OperationRow(
            id=f"operation-{uuid.uuid4().hex}",
            project_id=caller.project_id,
            request_digest=digest,
            state=OperationState.RUNNING.value,
            lease_expires_at=self._solves.lease_end(),
            created_at=datetime.now(UTC),
        )


def planned_answer(stored: StoredPlan) -> Plan:
    """Return the stored plan.

    Raises:
        NoStrategyError: if it is an infeasible answer, of which there is nothing more to show.
    """
    answer = stored.answer
    if isinstance(answer, Infeasible):
        raise NoStrategyError(stored.id)
    return answer


def _names(if_match: str, tag: str) -> bool:
    """Return whether `If-Match` names `tag`, by strong comparison (RFC 9110, 13.1.1)."""
    return not {tag, "*"}.isdisjoint(each.strip() for each in if_match.split(","))


def _claim_key(session: Session, caller: Caller, key: str, digest: str) -> None:
    stands_for = IdempotencyKeyRepository(session, caller.project_id).claim(
        key, request_digest=digest, at=datetime.now(UTC)
    )
    if stands_for != digest:
        raise KeyReusedError(key)
