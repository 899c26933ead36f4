"""The executor: applies a plan to a torch job, measures it, reports it.

A training script needs one name:

    import meshwright
    session = meshwright.start()
    trainer = session.parallelize(build_model, loss_fn, optimizer_fn)
    for inputs, targets in session.shard(loader):
        metrics = trainer.step(inputs, targets)

A module of one's own says how it can be split with `meshwright.Declaration`, and becomes a model
graph for the planner with `meshwright.trace`. Here they have the same names, which are found on
first use, so that what runs without torch can import this package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from planner.extras import check_extras

if TYPE_CHECKING:
    from executor.models.own import Declaration as Declaration
    from executor.models.positions import SequencePart as SequencePart
    from executor.session import start as start
    from executor.tracing import trace as trace
    from executor.weights import Weights as Weights

__all__ = ["Declaration", "SequencePart", "Weights", "start", "trace"]
_HOMES = {
    "Declaration": "executor.models.own",
    "SequencePart": "executor.models.positions",
    "Weights": "executor.weights",
    "start": "executor.session",
    "trace": "executor.tracing",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        check_extras(f"executor.{name}", "executor")
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
