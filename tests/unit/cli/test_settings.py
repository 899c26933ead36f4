"""`--set FIELD=VALUE` puts values where their paths say."""

import pytest

from planner.cli.settings import with_settings
from planner.errors import InputError


def test_values_are_written_as_in_yaml_and_intervals_as_in_options():
    settings = ["sequence_length=8192", "gradient_clipping=true", "limits.zero_stages=[0, 1]",
                "limits.micro_batch_size=2", "limits.context_parallel_degree=1..4"]  # fmt: skip
    assert with_settings({"stack": "torch"}, settings) == {
        "stack": "torch",
        "sequence_length": 8192,
        "gradient_clipping": True,
        "limits": {
            "zero_stages": [0, 1],
            "micro_batch_size": 2,
            "context_parallel_degree": {"min": 1, "max": 4},
        },
    }


def test_the_rest_of_a_part_stays_and_nobodys_own_is_changed():
    fields = {"limits": {"zero_stages": [3], "solver_seconds": 5}}
    assert with_settings(fields, ["limits.zero_stages=[2]"]) == {
        "limits": {"zero_stages": [2], "solver_seconds": 5}
    }
    assert fields == {"limits": {"zero_stages": [3], "solver_seconds": 5}}


def test_the_later_of_two_wins():
    assert with_settings({}, ["stack=torch", "stack=megatron"]) == {"stack": "megatron"}


@pytest.mark.parametrize(
    "setting",
    ["stack", "=3", "a..b=3", "Stack=torch", "a.=1", "__class__=1", "a=" + "9" * 20_000],
)
def test_what_is_no_setting_is_refused(setting):
    with pytest.raises(InputError, match=r"--set: is not FIELD=VALUE .*; write the field's path"):
        with_settings({}, [setting])


@pytest.mark.parametrize("text", ["{", "[1", "&x [*x]", "!!python/object:os.system x", "9" * 5000])
def test_what_is_no_value_is_refused(text):
    with pytest.raises(InputError, match="--set a"):
        with_settings({}, [f"a={text}"])


def test_a_field_of_a_plain_value_is_refused():
    with pytest.raises(InputError, match=r"--set: lies within stack.*set stack itself"):
        with_settings({"stack": "torch"}, ["stack.name=x"])


def test_a_command_takes_it_over_file_and_options(command, tmp_path):
    (tmp_path / "job.yaml").write_text("global_batch_size: 8\nsequence_length: 512\nstack: torch\n")
    done = command(
        "plan", "llama-3-8b", "8xh100-sxm5-80gb", "--job", tmp_path / "job.yaml",
        "--stack", "deepspeed", "--set", "stack=megatron", "--set", "sequence_length=1024",
        "--set", "limits.pipeline_parallel_degree=1", "--json",
    )  # fmt: skip
    assert (done.exit_code, done.stderr) == (0, "")
    job = done.fields["job"]["resolved"]
    assert (job["stack"], job["sequence_length"], job["global_batch_size"]) == ("megatron", 1024, 8)
    assert done.fields["strategy"]["pipeline_parallel_degree"] == 1


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("limits.nope=3", "limits.nope: is not a known field"),
        (
            "limits.tensor_parallel_degree=many",
            "is not a degree (got many); write one such as 8, or an interval",
        ),
        ("limits=3", "limits: must be an object of fields and values"),
        ("limits.zero_stages=[0, 7]", "limits.zero_stages.1:"),
    ],
)
def test_what_the_job_does_not_take_is_named(command, setting, said):
    done = command("plan", "llama-3-8b", "8xh100-sxm5-80gb", "--set", setting)
    assert done.exit_code == 1
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
