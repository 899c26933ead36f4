"""Demo: each step says its name, done or failed."""

import io

import pytest
from rich.console import Console

from planner.cli.demo.service import last_line
from planner.cli.demo.steps import DemoError, Steps
from planner.errors import InputError


@pytest.fixture
def console() -> Console:
    """A console that writes into memory."""
    return Console(file=io.StringIO(), width=120, highlight=False)


def written_on(console: Console) -> str:
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_done_step_leaves_a_line_with_its_count(console):
    steps = Steps(console, step_count=2)
    with steps.step("plan"):
        pass
    line = written_on(console).strip()
    assert "1/2 ✓ plan" in line
    assert line.endswith(" s")


def test_bar_grows_with_the_steps(console):
    steps = Steps(console, step_count=4)
    for name in ("a", "b"):
        with steps.step(name):
            pass
    assert [line.split()[1] for line in written_on(console).splitlines()] == ["1/4", "2/4"]


@pytest.mark.parametrize(
    "error",
    [
        InputError("is odd", field="f", value=3, remedy="use 4"),
        ConnectionRefusedError("refused"),
        DemoError("the loss did not fall"),
    ],
)
def test_failing_step_is_named_with_its_reason(console, error):
    steps = Steps(console, step_count=3)
    with pytest.raises(DemoError) as caught, steps.step("train"):
        raise error
    assert str(caught.value) == f"demo step 1 of 3 (train) failed: {error}"


def test_failing_step_leaves_no_tick(console):
    with pytest.raises(DemoError), Steps(console, step_count=1).step("train"):
        raise DemoError("no")
    assert "✓" not in written_on(console)


def test_bug_in_a_step_is_not_taken_for_its_failure(console):
    with pytest.raises(ZeroDivisionError), Steps(console, step_count=1).step("train"):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("content", "line"),
    [("", "it printed nothing"), ("a\nb  \n\n", "b"), ("one", "one")],
)
def test_last_line_of_a_log_says_what_went_wrong(tmp_path, content, line):
    log = tmp_path / "service.log"
    log.write_text(content)
    assert last_line(log) == line
