"""The executor's error tree, under the planner's. Messages name field, value and remedy.

MeshwrightError
├── InputError
│   ├── LaunchError             the plan cannot be run on this machine or in this environment
│   ├── UnsupportedPlanError    the plan asks for something that the executor cannot apply
│   ├── ModelMismatchError      the model or the batch is not the one that was planned
│   ├── CheckpointError         a directory holds no checkpoint that fits
│   │   └── CheckpointFilesError    it cannot be read or written now
│   ├── WeightsError            weights are another model's
│   │   └── WeightFilesError        they cannot be read or written now
│   └── UndefinedLossError      the loss is no finite number, where the script asked to stop
├── RefusedError                ranks refused what they were given, with one of the above
└── RankFailedError             a rank died or raised while training
"""

from __future__ import annotations

from planner.errors import InputError, MeshwrightError


class LaunchError(InputError):
    """The plan cannot be run on this machine, or outside a launcher."""


class UnsupportedPlanError(InputError):
    """The plan asks for something that the executor cannot apply."""


class ModelMismatchError(InputError):
    """The model or the batch is not the one that was planned."""


class CheckpointError(InputError):
    """A directory holds no checkpoint that this model can read."""


class CheckpointFilesError(CheckpointError):
    """It cannot be read or written now: for its disk, its folder, or another run."""


class WeightsError(InputError):
    """Weights are not those of the model."""


class WeightFilesError(WeightsError):
    """They cannot be read or written now: for their disk or folder."""


class UndefinedLossError(InputError):
    """The loss of a step is no finite number, and the script asked to stop there."""


class RefusedError(MeshwrightError):
    """Ranks refused what they were given: an `InputError`'s message, which is all ranks' alike.

    It `is_lasting` where the same launch would be refused again.
    """

    def __init__(self, message: str, *, is_lasting: bool = False) -> None:
        self.is_lasting = is_lasting
        super().__init__(message)


class RankFailedError(MeshwrightError):
    """A rank died or raised: which one, and its error in one line."""

    def __init__(self, rank: int, error: str) -> None:
        self.rank = rank
        self.error = error
        super().__init__(f"rank {rank} failed: {error}")


# What a loss or a step may raise that is tried on numbers which it was not made for.
OF_NO_USE = (
    RuntimeError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    AssertionError,
)
