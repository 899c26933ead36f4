"""Launch: what a launcher starts of a plan, by our executor or as the job of a framework."""

from __future__ import annotations

from dataclasses import dataclass

from planner.exporters.draft import Draft, first_draft
from planner.exporters.export import Export, ExportedFile
from planner.exporters.job_commands import JobCommand, Node, executor_command, job_command
from planner.exporters.torchrun import PLAN_FILE
from planner.schema.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A launcher's name, the plan, and the framework's export where it starts that.

    With a framework, what is lost and what is run are of its export.
    """

    target: str
    plan: Plan
    job: Export | None

    @property
    def draft(self) -> Draft:
        """Return the strategy that will run, and what has been lost of the plan."""
        if self.job is None:
            return first_draft(self.plan, self.target)
        return Draft(
            target=self.target,
            plan=self.plan,
            strategy=self.job.strategy,
            losses=self.job.losses,
        )

    @property
    def files(self) -> tuple[ExportedFile, ...]:
        """Return the files that the job reads."""
        if self.job is not None:
            return self.job.files
        return (ExportedFile(name=PLAN_FILE, text=self.plan.to_json()),)

    @property
    def needs(self) -> str:
        """Return what whoever starts the job has to bring, in a phrase."""
        if self.job is None:
            return "a script that calls meshwright.start()"
        if self.command(Node(rank="", address="")).takes_script:
            return f"a script for {self.job.target}"
        return f"what {self.job.target}'s own command takes"

    def command(self, node: Node) -> JobCommand:
        """Return the command of one node."""
        if self.job is None:
            return executor_command(self.plan, node)
        return job_command(self.plan, self.job, node)
