"""Meshwright in Python: plan a training job, price strategies, and train under a plan.

    import meshwright

    model = meshwright.read_model("llama-3-8b")
    cluster = meshwright.read_cluster("8xh100-sxm5-80gb")
    answer = meshwright.plan(model, cluster, meshwright.Job(global_batch_size=64))

and, in a training script, `session = meshwright.start()`. Everything has its home in `planner` and
`executor`; a name is looked up when it is first used, so that whoever plans never loads torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from executor.added_loss import add_loss as add_loss
    from executor.models.own import Declaration as Declaration
    from executor.models.positions import SequencePart as SequencePart
    from executor.resumption import Resumption as Resumption
    from executor.session import Session as Session
    from executor.session import start as start
    from executor.tracing import trace as trace
    from executor.weights import Weights as Weights
    from planner.answers.capacity import size as size
    from planner.answers.check import check as check
    from planner.answers.frontier import frontier as frontier
    from planner.errors import InputError as InputError
    from planner.errors import MeshwrightError as MeshwrightError
    from planner.errors import MissingExtraError as MissingExtraError
    from planner.errors import SolverError as SolverError
    from planner.errors import VerificationError as VerificationError
    from planner.importers.cluster.formats import cluster_from_output as cluster_from_output
    from planner.planning import estimate as estimate
    from planner.planning import estimates as estimates
    from planner.planning import plan as plan
    from planner.proof.verify import verify as verify
    from planner.requests.inquiry import Inquiry as Inquiry
    from planner.requests.references import read_cluster as read_cluster
    from planner.requests.references import read_model as read_model
    from planner.requests.resolution import resolved_cluster as resolved_cluster
    from planner.requests.resolution import resolved_model as resolved_model
    from planner.requests.resolution import resolved_request as resolved_request
    from planner.schema.check import CheckReport as CheckReport
    from planner.schema.cluster import Cluster as Cluster
    from planner.schema.frontier import Frontier as Frontier
    from planner.schema.job import Job as Job
    from planner.schema.job import Limits as Limits
    from planner.schema.model import ModelGraph as ModelGraph
    from planner.schema.plan import Estimate as Estimate
    from planner.schema.plan import Infeasible as Infeasible
    from planner.schema.plan import Plan as Plan
    from planner.schema.run import RunReport as RunReport
    from planner.schema.sizing import Sizing as Sizing
    from planner.schema.sizing import SizingWish as SizingWish
    from planner.schema.strategy import Strategy as Strategy

    __version__: str

__all__ = [
    "CheckReport",
    "Cluster",
    "Declaration",
    "Estimate",
    "Frontier",
    "Infeasible",
    "InputError",
    "Inquiry",
    "Job",
    "Limits",
    "MeshwrightError",
    "MissingExtraError",
    "ModelGraph",
    "Plan",
    "Resumption",
    "RunReport",
    "SequencePart",
    "Session",
    "Sizing",
    "SizingWish",
    "SolverError",
    "Strategy",
    "VerificationError",
    "Weights",
    "__version__",
    "add_loss",
    "check",
    "cluster_from_output",
    "estimate",
    "estimates",
    "frontier",
    "plan",
    "read_cluster",
    "read_model",
    "resolved_cluster",
    "resolved_model",
    "resolved_request",
    "size",
    "start",
    "trace",
    "verify",
]
_HOMES = {
    "executor.added_loss": ("add_loss",),
    "executor.models.own": ("Declaration",),
    "executor.models.positions": ("SequencePart",),
    "executor.resumption": ("Resumption",),
    "executor.session": ("Session", "start"),
    "executor.tracing": ("trace",),
    "executor.weights": ("Weights",),
    "planner.answers.capacity": ("size",),
    "planner.answers.check": ("check",),
    "planner.errors": (
        "InputError",
        "MeshwrightError",
        "MissingExtraError",
        "SolverError",
        "VerificationError",
    ),
    "planner.answers.frontier": ("frontier",),
    "planner.importers.cluster.formats": ("cluster_from_output",),
    "planner.requests.inquiry": ("Inquiry",),
    "planner.planning": ("estimate", "estimates", "plan"),
    "planner.requests.references": ("read_cluster", "read_model"),
    "planner.requests.resolution": ("resolved_cluster", "resolved_model", "resolved_request"),
    "planner.schema.check": ("CheckReport",),
    "planner.schema.cluster": ("Cluster",),
    "planner.schema.frontier": ("Frontier",),
    "planner.schema.job": ("Job", "Limits"),
    "planner.schema.model": ("ModelGraph",),
    "planner.schema.plan": ("Estimate", "Infeasible", "Plan"),
    "planner.schema.run": ("RunReport",),
    "planner.schema.sizing": ("Sizing", "SizingWish"),
    "planner.schema.strategy": ("Strategy",),
    "planner.proof.verify": ("verify",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def _looked_up(name: str) -> Any:
    if name == "__version__":
        return import_module("planner.version").planner_version()
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOME_OF[name]
    if home.startswith("executor."):
        import_module("planner.extras").check_extras(f"meshwright.{name}", "executor")
    return getattr(import_module(home), name)


if not TYPE_CHECKING:  # to a type checker it would say that there is any name
    __getattr__ = _looked_up


def __dir__() -> list[str]:
    return sorted(__all__)
