"""Learnt: how far steps are from predicted, given runs that were measured.

The logarithm of measured over predicted of run i is f_i + e_i, both normal around 0. What runs
share, f, is alike for runs that are alike; what is a run's own, e, is not:

    cov(f_i, f_j) = t_i t_j exp(-d_ij / 8),   d^2 = sum_k (log2 x_ik - log2 x_jk)^2 + 16 m

with x the sizes of a run (devices, tensor and pipeline parallel degree, micro-batch, sequence,
parameters), so that a doubling is 1 away, and m in how many of device, stack and number format the
two differ, 4 doublings each. Trials of one tuning, and what is predicted by them, share a factor of
machine and job as well, for which b^2 is added: the larger b, the less is known of it before. With
K the covariance of the runs that were measured, N that of their own parts, y their logarithms and k
the covariance with them of a run to predict,

    mean f = k' (K + N)^-1 y,   variance of f = t^2 - k' (K + N)^-1 k.

Source: Rasmussen and Williams 2006, Gaussian Processes for Machine Learning, equations 2.25, 2.26.
8 and 4 are the likeliest of 2 to 16 and 1 to 4 on published runs: `python -m benchmarks.intervals`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from planner.cost.configuration import Configurations, Floats
from planner.hardware import DeviceHardware
from planner.schema.job import Calibration, Job, LearntRun
from planner.workload.layer import ModelWorkload

DOUBLINGS = 8.0
"""As far apart as runs correlate by 1 / e."""

APART = 4.0
"""Doublings that another device, stack or number format is away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """Runs by what makes them alike: `sizes` [runs, n] are logarithms, `kinds` [runs, 3] names."""

    sizes: Floats
    kinds: NDArray[np.str_]

    def correlations(self, others: Points) -> Floats:
        """Return exp(-d / 8) of every two runs, [runs, others]."""
        squares = ((self.sizes[:, None] - others.sizes) ** 2).sum(axis=-1)
        apart = (self.kinds[:, None] != others.kinds).sum(axis=-1)
        return np.asarray(np.exp(-np.sqrt(squares + APART**2 * apart) / DOUBLINGS))


def points_of(
    workload: ModelWorkload,
    hardware: DeviceHardware,
    job: Job,
    *,
    configurations: Configurations,
) -> Points:
    """Return the runs of a resolved job on one kind of device, one for each configuration."""
    rows = configurations
    ranks = rows.tensor_parallel_degree * rows.pipeline_parallel_degree * rows.data_parallel_degree
    columns = (
        ranks * rows.context_parallel_degree,
        rows.tensor_parallel_degree,
        rows.pipeline_parallel_degree,
        rows.micro_batch_size,
        np.full(len(rows), job.sequence_length),
        np.full(len(rows), workload.parameter_count),
    )
    kind = [hardware.device, job.stack.value, job.precision.value]
    return Points(
        sizes=np.log2(np.stack(columns, axis=1).astype(np.float64)),
        kinds=np.array([kind] * len(rows)),
    )


def points_of_runs(runs: Sequence[LearntRun]) -> Points:
    """Return measured runs as points."""
    sizes = [
        (
            run.device_count,
            run.tensor_parallel_degree,
            run.pipeline_parallel_degree,
            run.micro_batch_size,
            run.sequence_length,
            run.parameter_count,
        )
        for run in runs
    ]
    kinds = [(run.device, run.stack.value, run.precision.value) for run in runs]
    return Points(sizes=np.log2(np.array(sizes, dtype=np.float64)), kinds=np.array(kinds))


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """What runs say: `weights` [runs] are (K + N)^-1 y, `precision` [runs, runs] is (K + N)^-1.

    `deviations` are t, `common_deviations` b, [runs] each.
    """

    points: Points
    deviations: Floats
    common_deviations: Floats
    weights: Floats
    precision: Floats

    @staticmethod
    def of(runs: Sequence[LearntRun]) -> Learnt:
        """Return what measured runs say."""
        return Learnt.of_errors(
            points_of_runs(runs),
            errors=np.array([run.log_error for run in runs]),
            shared=np.array([run.shared_deviation for run in runs]),
            own=np.array([run.own_deviation for run in runs]),
            common=np.array([run.common_deviation for run in runs]),
        )

    @staticmethod
    def of_errors(
        points: Points, *, errors: Floats, shared: Floats, own: Floats, common: Floats
    ) -> Learnt:
        """Return what logarithms of measured over predicted say, arrays being [runs]."""
        covariance = np.outer(shared, shared) * points.correlations(points)
        covariance += np.outer(common, common)
        precision = np.asarray(np.linalg.inv(covariance + np.diag(own**2)), dtype=np.float64)
        return Learnt(
            points=points,
            deviations=shared,
            common_deviations=common,
            weights=precision @ errors,
            precision=precision,
        )

    def log_factors(self, points: Points, *, deviation: float) -> Floats:
        """Return the mean f of runs to predict whose t is `deviation`, [runs]."""
        return self._covariances(points, deviation) @ self.weights

    def covariance(self, points: Points, *, deviation: float) -> Floats:
        """Return the covariance of f that is left, [runs, runs]."""
        own = self._covariances(points, deviation)
        prior = deviation**2 * points.correlations(points) + self._common_deviation**2
        return np.asarray(prior - own @ self.precision @ own.T)

    def left_out(self) -> tuple[Floats, Floats]:
        """Return how far each run is from what all others say, and the variance of that, [runs]."""
        variances = 1.0 / np.diag(self.precision)
        return self.weights * variances, variances

    def _covariances(self, points: Points, deviation: float) -> Floats:
        alike = deviation * points.correlations(self.points) * self.deviations
        return np.asarray(alike + self._common_deviation * self.common_deviations)

    @property
    def _common_deviation(self) -> float:
        return float(self.common_deviations.max())


@lru_cache(maxsize=8)
def learnt_of(calibration: Calibration) -> Learnt:
    """Return what the runs of a calibration say, worked out once."""
    return Learnt.of(calibration.runs)


def learnt_by(job: Job) -> Learnt | None:
    """Return what the runs of a job's calibration say, `None` without any."""
    calibration = job.calibration
    return learnt_of(calibration) if calibration is not None and calibration.runs else None
