"""References: the models and clusters that names, short forms and paths stand for, read."""

from __future__ import annotations

from pathlib import Path

from planner.importers import clusters, models
from planner.requests.resolution import cluster_document, model_document
from planner.schema.plan import ResolvedCluster, ResolvedModel


def read_model(reference: str | Path) -> ResolvedModel:
    """Return the model behind a known name or a path.

    Raises:
        InputError: if there is no such model or file, or its content is bad.
    """
    given, graph = models.read_model(str(reference))
    return model_document(given, graph)


def read_cluster(reference: str | Path) -> ResolvedCluster:
    """Return the cluster behind a short form or a path, with what was assumed in reading it.

    Raises:
        InputError: if the form or the file's content is bad.
    """
    given, cluster, assumptions = clusters.read_cluster(str(reference))
    return cluster_document(given, cluster, assumptions)
