"""Words: what a measured certificate claims, in a sentence for each thing."""

from __future__ import annotations

from collections.abc import Iterator

from planner.schema.tuning import MeasuredCertificate, TuningBudget
from planner.units import counted, format_seconds


def claim(certificate: MeasuredCertificate) -> str:
    """Return what is claimed of all plans that were not tried."""
    count = f"{certificate.configurations_total:,} configurations"
    if certificate.faster_ratio is None:
        return f"nothing was measured to hold plans of {count} against"
    if certificate.faster_ratio <= 0.0:
        gain = "faster"
    else:
        gain = f"more than {certificate.faster_ratio:.1%} faster"
    return f"no plan of {count} has more than a 10% chance of being {gain} than what was measured"


def ending(certificate: MeasuredCertificate, budget: TuningBudget) -> str:
    """Return why the tuning ended."""
    match certificate.ended_by:
        case "runs":
            return f"the budget of {counted(budget.runs, 'run')} is spent"
        case "minutes":
            return f"the budget of {budget.minutes:g} minutes is spent"
        case "proven":
            return "no plan that was not tried is likely enough to be faster"
        case "exhausted" if not certificate.run_count:
            return "no plan is likely to fit; `meshwright plan` says what would make one fit"
        case "exhausted":
            return "no other plan was found that is likely to fit and could be faster"


def certificate_lines(certificate: MeasuredCertificate, budget: TuningBudget) -> Iterator[str]:
    """Yield the end of a tuning, a line each: trials, the best, the claim."""
    lost = certificate.out_of_memory_count
    failed = certificate.failed_count
    measured = certificate.run_count - lost - failed
    trials = counted(certificate.run_count, "trial")
    yield (
        f"{trials}: {measured} measured, {lost} out of memory, {failed} failed; "
        f"{ending(certificate, budget)}"
    )
    if certificate.best_trial is not None and certificate.step_seconds is not None:
        step = format_seconds(certificate.step_seconds)
        yield f"best: trial {certificate.best_trial}, {step} a step as measured (median)"
    yield claim(certificate)
