"""Resumption: where a launched run keeps its checkpoint, and whether it goes on from there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from executor.agreement import from_first_rank
from executor.checkpoint_record import RECORD_NAME
from executor.environment import CHECKPOINT_FOLDER, CHECKPOINT_STEPS, RESUME
from executor.errors import LaunchError
from executor.shared_folder import check_shared
from executor.trainer import Trainer


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """A run's checkpoint folder, `None` where nobody gave one, and how often it is written."""

    folder: Path | None = None
    every_steps: int = 0
    is_continued: bool = False

    @staticmethod
    def read(variables: Mapping[str, str]) -> Resumption:
        """Return what the launcher's environment says.

        Raises:
            LaunchError: if the number of steps is none.
        """
        folder, steps = variables.get(CHECKPOINT_FOLDER), variables.get(CHECKPOINT_STEPS) or "0"
        if not steps.isdigit():
            raise LaunchError(
                "must be a whole number",
                field=CHECKPOINT_STEPS,
                value=steps,
                remedy="say after how many steps a checkpoint is written, 0 for the last alone",
            )
        return Resumption(
            folder=Path(folder) if folder else None,
            every_steps=int(steps),
            is_continued=variables.get(RESUME) == "1",
        )

    def follows(self) -> bool:
        """Return whether the run goes on and there is a checkpoint. A collective call.

        It is what `parallelize` takes as `checkpoint_follows`, so that no values are drawn before.

        Raises:
            CheckpointError: if nodes do not share the folder.
        """
        if self.folder is None:
            return False
        check_shared(self.folder)
        if not self.is_continued:
            return False
        is_there: bool = from_first_rank((self.folder / RECORD_NAME).is_file())
        return is_there

    def resume(self, trainer: Trainer) -> bool:
        """Load the folder's checkpoint if the run goes on and there is one. A collective call.

        Raises:
            CheckpointError: if it cannot be loaded, or nodes do not share the folder.
        """
        if self.folder is None or not self.follows():
            return False
        trainer.load(self.folder)
        return True

    def after_step(self, trainer: Trainer, *, is_last: bool) -> None:
        """Save where a checkpoint is due: after every so many steps, and after the last.

        A collective call.

        Raises:
            CheckpointError: if it cannot be written.
        """
        if self.folder is None:
            return
        if is_last or (self.every_steps and trainer.step_count % self.every_steps == 0):
            trainer.save(self.folder)
