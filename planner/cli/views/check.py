"""A check, as a person and as a CI server reads it."""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement, indent, tostring

from rich.console import Group, RenderableType
from rich.text import Text

from planner.schema.check import CheckReport, CheckResult

_STYLES = {"passed": "green", "failed": "bold red", "skipped": "dim"}


def check_view(report: CheckReport) -> RenderableType:
    """Return one line for each check, and what made the step differ."""
    lines = [
        Text.assemble((f"{one.outcome:8}", _STYLES[one.outcome]), _words(one))
        for one in report.results
    ]
    return Group(*lines)


def _words(one: CheckResult) -> str:
    return f"{one.name.replace('_', ' ')}: {one.detail}"


def junit_report(report: CheckReport) -> str:
    """Return the checks as JUnit XML: one test suite, one case a check."""
    counts = {
        "tests": len(report.results),
        "failures": sum(one.outcome == "failed" for one in report.results),
        "skipped": sum(one.outcome == "skipped" for one in report.results),
        "errors": 0,
    }
    attributes = {name: str(count) for name, count in counts.items()}
    suites = Element("testsuites", {"name": "meshwright check", **attributes})
    suite = SubElement(suites, "testsuite", {"name": _printable(report.source), **attributes})
    for one in report.results:
        case = SubElement(suite, "testcase", {"name": one.name, "classname": "meshwright.check"})
        detail = _printable(one.detail)
        if one.outcome == "failed":
            SubElement(case, "failure", {"message": detail}).text = detail
        elif one.outcome == "skipped":
            SubElement(case, "skipped", {"message": detail})
        else:
            SubElement(case, "system-out").text = detail
    indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(suites, encoding="unicode") + "\n"


def _printable(text: str) -> str:
    """Return `text` without the control characters that no XML may hold."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
