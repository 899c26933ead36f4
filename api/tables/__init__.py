"""The tables. What is asked for by field is a column; documents are kept as their JSON text."""

from api.tables.agents import AgentRow, EnrolmentTokenRow
from api.tables.analyses import AnalysisRow
from api.tables.audit import AuditEventRow
from api.tables.idempotency import IdempotencyKeyRow
from api.tables.keys import ApiKeyRow
from api.tables.leases import LeaseLogRow, LeaseMetricRow, LeaseRow
from api.tables.metadata import NAMING, SEQUENCE, Base, UtcDateTime
from api.tables.operations import OperationEventRow, OperationRow
from api.tables.plans import SORTED_FIGURES, PlanRow, PlanTagRow
from api.tables.projects import ProjectRow
from api.tables.runs import RunEventRow, RunPlanRow, RunRow
from api.tables.secrets import ServiceSecretRow
from api.tables.spent_tokens import SpentTokenRow
from api.tables.tunings import TuningRow

__all__ = [
    "NAMING",
    "SEQUENCE",
    "SORTED_FIGURES",
    "AgentRow",
    "AnalysisRow",
    "ApiKeyRow",
    "AuditEventRow",
    "Base",
    "EnrolmentTokenRow",
    "IdempotencyKeyRow",
    "LeaseLogRow",
    "LeaseMetricRow",
    "LeaseRow",
    "OperationEventRow",
    "OperationRow",
    "PlanRow",
    "PlanTagRow",
    "ProjectRow",
    "RunEventRow",
    "RunPlanRow",
    "RunRow",
    "ServiceSecretRow",
    "SpentTokenRow",
    "TuningRow",
    "UtcDateTime",
]
