"""The form: everything wrong is said at once, at its field, with value and remedy."""

import json

import pytest

from api.dashboard.submission import read_submission, refused, typed, understanding, values_of
from api.errors import problem_of
from planner.errors import InputError
from planner.schema.job import DegreeLimit, Job, Limits
from planner.schema.plan import ResolvedCluster, ResolvedJob, ResolvedModel
from tests.builders import a_cluster, a_job, a_model, a_plan

CONFIG = {
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 4096,
    "max_position_embeddings": 1024,
}
CLUSTER = """\
name: lab
node_groups:
  - {name: a, device: h100-sxm5-80gb, node_count: 2, devices_per_node: 4}
"""


def a_form(**changes):
    """A form that asks for a known model on eight H100."""
    return typed({"model_name": "llama-3-8b", "cluster_short": "8xh100-sxm5-80gb", **changes})


def complaint(field, **changes):
    """Return the complaint at `field`, the only one."""
    submission = read_submission(a_form(**changes))
    assert submission.request is None
    assert list(submission.complaints) == [field]
    return submission.complaints[field]


def test_names_and_defaults_make_a_request():
    request = read_submission(a_form()).request
    assert (request.model, request.cluster) == ("llama-3-8b", "8xh100-sxm5-80gb")
    assert request.job.global_batch_size is None
    assert request.job.limits == Limits()


def test_pasted_documents_make_a_request():
    request = read_submission(
        a_form(
            model_source="config",
            model_config=json.dumps(CONFIG),
            cluster_source="document",
            cluster_document=CLUSTER,
        )
    ).request
    assert request.model == CONFIG
    assert request.cluster["name"] == "lab"


def test_a_form_that_is_not_sent_says_what_it_means_so_far():
    nothing = understanding(typed({}))
    assert (nothing.model, nothing.cluster, nothing.empty) == ("", "", {})
    form = a_form(model_source="config", model_config=json.dumps(CONFIG), cluster_short="16x4xh100")
    said = understanding(form)
    assert said.model.startswith("Read as llama 17M: llama, 4 blocks, hidden size 512,")
    assert said.model.endswith("sequences of up to 1,024 tokens")
    assert said.cluster == "Read as 64 devices: 16 nodes of 4 h100-sxm5-80gb"
    assert said.empty == {"sequence_length": "1024", "global_batch_size": "4096"}


def test_what_is_not_understood_yet_is_said_with_its_remedy():
    said = understanding(a_form(model_name="lama-3-8b", cluster_short="8xh1000"))
    assert "is not a known model (got lama-3-8b); did you mean llama-3-8b " in said.model
    assert "h1000" in said.cluster
    assert said.empty == {}
    odd = understanding(a_form(sequence_length="many"))
    assert (odd.cluster, odd.empty) == ("Read as 8 devices: 1 node of 8 h100-sxm5-80gb", {})


def test_job_fields_are_read():
    job = read_submission(
        a_form(
            global_batch_size=" 64 ",
            sequence_length="2048",
            precision="fp16",
            optimizer="sgd",
            stack="megatron",
            tensor_parallel_max="4",
            pipeline_parallel_min="2",
            memory_headroom_percent="10",
            fits_percent="80",
            solver_seconds="2.5",
        )
    ).request.job
    assert (job.global_batch_size, job.sequence_length) == (64, 2048)
    assert (job.precision, job.optimizer, job.stack) == ("fp16", "sgd", "megatron")
    assert job.limits.tensor_parallel_degree == DegreeLimit(min=1, max=4)
    assert job.limits.pipeline_parallel_degree == DegreeLimit(min=2)
    assert job.limits.memory_headroom_ratio == pytest.approx(0.1)
    assert job.limits.fits_probability == pytest.approx(0.8)
    assert job.limits.solver_seconds == 2.5


def test_a_framework_brings_its_stack_and_an_objective_is_taken():
    job = read_submission(a_form(framework="megatron-lm", objective="memory")).request.job
    assert (job.framework, job.stack, job.objective) == ("megatron-lm", "megatron", "memory")


def test_a_framework_of_another_stack_is_told_at_it():
    found = complaint("framework", framework="megatron-lm", stack="deepspeed")
    assert "is of the stack megatron" in found.problem


def test_further_fields_are_read_and_the_forms_own_win():
    rest = "{gradient_clipping: false, sequence_length: 17, limits: {micro_batch_size: {max: 2}}}"
    job = read_submission(
        a_form(job_rest=rest, sequence_length="2048", tensor_parallel_max="4")
    ).request.job
    assert (job.gradient_clipping, job.sequence_length) == (False, 2048)
    assert job.limits.micro_batch_size == DegreeLimit(max=2)
    assert job.limits.tensor_parallel_degree == DegreeLimit(min=1, max=4)


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        (
            "limits: {context_parallel_degree: many}",
            "limits.context_parallel_degree: is not a degree",
        ),
        ("limits: 3", "limits: must be an object of fields and values"),
        ("nonsense: 3", "nonsense: is not a known field"),
        ("[1", "further job fields: is not valid YAML"),
        ("just words", "further job fields"),
    ],
)
def test_what_is_wrong_with_further_fields_is_told_there(rest, said):
    assert complaint("job_rest", job_rest=rest).problem.startswith(said)


def test_a_job_with_more_than_the_form_has_is_asked_for_again_whole():
    asked = {
        "global_batch_size": 64, "sequence_length": 512, "objective": "memory",
        "gradient_clipping": False,
        "limits": {"zero_stages": [0, 1], "tensor_parallel_degree": {"min": 1, "max": 2}},
    }  # fmt: skip
    job = Job.model_validate(asked)
    given = ResolvedJob(given=asked, resolved=job, digest=job.digest())
    again = read_submission(values_of(a_plan(job=given)) | {"model_name": "gpt2"}).request.job
    assert again == job


def test_defaults_do_not_fill_the_further_fields():
    job = a_job()
    given = ResolvedJob(given=job.model_dump(mode="json"), resolved=job, digest=job.digest())
    assert values_of(a_plan(job=given))["job_rest"] == ""


def test_broken_json_is_told_with_its_place():
    found = complaint("model_config", model_source="config", model_config='{"hidden_size": 512,')
    assert "is not valid JSON" in found.problem
    assert found.value == "line 1 column 21"
    assert found.remedy


def test_bad_field_of_a_config_is_named():
    text = json.dumps({**CONFIG, "hidden_size": -1})
    found = complaint("model_config", model_source="config", model_config=text)
    assert found.problem.startswith("hidden_size: ")
    assert found.value == "-1"


def test_unknown_device_is_told_at_the_cluster():
    found = complaint("cluster_short", cluster_short="8xh1000")
    assert found.value == "h1000"


def test_part_of_a_node_is_told_with_what_can_be_written():
    found = complaint("cluster_short", cluster_short="12xh100")
    assert found.value == "12xh100"
    assert "2x6xh100-sxm5-80gb" in found.remedy
    assert "16xh100-sxm5-80gb" in found.remedy


def test_cluster_without_a_form_is_told_at_its_text():
    found = complaint("cluster_document", cluster_source="document", cluster_document="name: lab")
    assert found.problem.startswith("node_groups")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"model_name": ""}, "model_name"),
        ({"model_source": "config"}, "model_config"),
        ({"cluster_short": "  "}, "cluster_short"),
        ({"cluster_source": "document"}, "cluster_document"),
    ],
)
def test_what_is_missing_is_asked_for(changes, field):
    assert complaint(field, **changes).problem.endswith("is required")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("global_batch_size", "many"),
        ("global_batch_size", "0"),
        ("global_batch_size", "9" * 5000),
        ("sequence_length", "-4"),
        ("sequence_length", "1.5"),
        ("precision", "bf17"),
        ("optimizer", "magic"),
        ("stack", "jenga"),
        ("solver_seconds", "nan"),
        ("solver_seconds", "0"),
        ("memory_headroom_percent", "100"),
        ("memory_headroom_percent", "some"),
        ("memory_headroom_percent", "inf"),
        ("fits_percent", "100"),
        ("fits_percent", "49"),
        ("fits_percent", "sure"),
    ],
)
def test_bad_number_is_told_at_its_field(field, value):
    found = complaint(field, **{field: value})
    assert found.value.startswith(value[:50])
    assert found.remedy


def test_bounds_the_wrong_way_round_are_told_with_both():
    found = complaint("tensor_parallel", tensor_parallel_min="8", tensor_parallel_max="2")
    assert found.value == "8 to 2"


def test_all_that_is_wrong_is_told_at_once():
    submission = read_submission(
        a_form(model_name="llama-9", cluster_short="8xh1000", sequence_length="x", stack="y")
    )
    assert set(submission.complaints) == {
        "model_name",
        "cluster_short",
        "sequence_length",
        "stack",
    }


def test_what_only_fits_together_is_told_at_the_field_that_can_change():
    found = complaint("sequence_length", model_name="gpt2", sequence_length="4096")
    assert "1024" in found.problem


def test_input_is_kept_as_typed():
    values = a_form(sequence_length=" x ", model_name="llama-9")
    assert read_submission(values).values == values


def test_foreign_fields_of_a_form_are_ignored():
    assert "evil" not in typed({"evil": "1"})
    assert typed({"model_name": 5})["model_name"] == ""


def test_what_the_service_refuses_is_told_at_its_field():
    error = InputError(
        "ran out", field="job.limits.solver_seconds", value=1.0, remedy="allow more seconds"
    )
    found = refused(a_form(), problem_of(error)).complaints["solver_seconds"]
    assert (found.problem, found.value, found.remedy) == ("ran out", "1.0", "allow more seconds")


def test_form_is_filled_with_what_an_answer_was_asked_for():
    job = a_job(limits=Limits(pipeline_parallel_degree=DegreeLimit(min=2, max=8)))
    given = ResolvedJob(given=job.model_dump(mode="json"), resolved=job, digest=job.digest())
    values = values_of(a_plan(job=given))
    assert (values["model_source"], values["model_name"]) == ("name", "tiny")
    assert (values["cluster_source"], values["cluster_short"]) == ("short", "8xh100-sxm5-80gb")
    assert (values["global_batch_size"], values["sequence_length"]) == ("16", "128")
    assert (values["pipeline_parallel_min"], values["pipeline_parallel_max"]) == ("2", "8")
    assert values["tensor_parallel_max"] == ""


@pytest.mark.parametrize(("chance", "percentage"), [(None, "50"), (0.8, "80"), (0.999, "99.9")])
def test_the_chance_of_an_answer_is_filled_in_and_none_is_an_even_one(chance, percentage):
    job = a_job(limits=Limits(fits_probability=chance))
    given = ResolvedJob(given=job.model_dump(mode="json"), resolved=job, digest=job.digest())
    assert values_of(a_plan(job=given))["fits_percent"] == percentage


def test_documents_of_an_answer_are_pasted_back():
    model, cluster = a_model(), a_cluster()
    plan = a_plan(
        model=ResolvedModel(given={"a": 1}, resolved=model, digest=model.digest()),
        cluster=ResolvedCluster(given={"b": 2}, resolved=cluster, digest=cluster.digest()),
    )
    values = values_of(plan)
    assert (values["model_source"], json.loads(values["model_config"])) == ("config", {"a": 1})
    assert values["cluster_source"] == "document"
    assert json.loads(values["cluster_document"]) == {"b": 2}
