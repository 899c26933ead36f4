"""Formulation: an instance as a mixed-integer program over counts of identical layers.

Sets       r stages; k runs; s choices of run k; j levels of transient bytes of a stage
Variables  n[r,k,s]  layers of run k on stage r under choice s            whole, 0 to most[r,k,s]
           V         largest stage pace, times m - 1                      >= 0
           U         largest stage end                                    >= 0
           q[r,j]    stage r has a layer of transient level j or above    0/1
           z[r,k]    block run k is placed whole by the end of stage r    0/1
Objective  minimise  sum_r t_r + V + U,   t_r = t0_r + sum tau n

C1 placed       every layer of every run is placed once          -> constraints.placed
C2 occupied     every stage holds a block                        -> constraints.occupied
C3 pace         V >= (m - 1) t_r                                  -> constraints.pace
C4 end          U >= u0 + sum u n                                 -> constraints.end
C5 memory       b0_r + sum (static + f_r act) n + transient <= capacity   -> constraints.memory
C6 host         sum h n <= host capacity                          -> constraints.host
C7 contiguous   runs follow one another along the stages          -> constraints.contiguous
C8 cutoff       objective <= the best plan known                  -> constraints.cutoff
C9 cuts         every cut of the chain lies in its window         -> constraints.windows
C10 bounds      sum_r t_r, V, U and V + U >= their bounds         -> constraints.bounds

most, the windows and the bounds come from `planner.ilp.reduction`: they cut off no plan below the
cutoff, and turn programs that take minutes into programs that take less than a second.

Seconds are scaled so that the cutoff is 1, bytes so that the capacity is 1: coefficients stay
within about six orders of magnitude. V stands in for (m - 1) T so that the solver's tolerance on
C3 is one on the step itself, and not m - 1 times as much.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from planner.ilp.instance import Instance
from planner.ilp.program import Program, Variable
from planner.ilp.reduction import Reduction


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """What one unit of the program stands for."""

    seconds: float
    bytes: float


@dataclass(slots=True, kw_only=True)
class Formulation:
    """The program of an instance with the meaning of its columns."""

    instance: Instance
    reduction: Reduction
    scale: Scale
    program: Program = field(default_factory=Program)
    layers: dict[tuple[int, int, int], int] = field(default_factory=dict)
    repeated_pace: int = -1
    largest_end: int = -1


def formulate(instance: Instance, reduced: Reduction, *, scale_seconds: float) -> Formulation:
    """Return the columns and the objective of `instance`, without any rows yet."""
    scale = Scale(seconds=scale_seconds, bytes=max(instance.capacity_bytes, 1.0))
    made = Formulation(instance=instance, reduction=reduced, scale=scale)
    _add_layers(made)
    made.repeated_pace = made.program.add(Variable(name="V"))
    made.largest_end = made.program.add(Variable(name="U"))
    _add_objective(made)
    return made


def _add_layers(made: Formulation) -> None:
    """Add n[r,k,s] where it may be above 0."""
    for k, most in enumerate(made.reduction.most):
        for r, s in np.argwhere(most > 0).tolist():
            variable = Variable(name=f"n[{r},{k},{s}]", upper=int(most[r, s]), is_integer=True)
            made.layers[r, k, s] = made.program.add(variable)


def _add_objective(made: Formulation) -> None:
    """Minimise sum tau n + V + U; the constant sum of t0 is left out."""
    instance, unit = made.instance, made.scale.seconds
    for (_, k, s), column in made.layers.items():
        made.program.objective.append((column, float(instance.runs[k].pace[s]) / unit))
    made.program.objective.append((made.repeated_pace, 1.0))
    made.program.objective.append((made.largest_end, 1.0))
