"""Documents: how bytes become one, and what each kind of bad input is told."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import DocumentError
from planner.schema.cluster import Cluster
from planner.schema.document import DOCUMENT_BYTES_LIMIT, parse_fields, read_fields
from planner.schema.job import Job
from planner.schema.plan import Plan
from tests.builders import a_job, a_plan


def failure_of(content: bytes, *, yaml_allowed: bool = False) -> DocumentError:
    """Return how parsing `content` fails."""
    with pytest.raises(DocumentError) as caught:
        parse_fields(content, source="it", yaml_allowed=yaml_allowed)
    return caught.value


def test_missing_file_is_named(tmp_path):
    with pytest.raises(DocumentError, match=r"absent\.json: no such file"):
        read_fields(tmp_path / "absent.json")


def test_directory_is_not_read_as_a_document(tmp_path):
    with pytest.raises(DocumentError, match="cannot be read"):
        read_fields(tmp_path)


def test_file_over_the_limit_is_refused_by_its_size(tmp_path):
    path = tmp_path / "config.json"
    path.write_bytes(b" " * (DOCUMENT_BYTES_LIMIT + 1))
    with pytest.raises(DocumentError, match="larger than 4194304 bytes"):
        read_fields(path)


def test_bytes_over_the_limit_are_refused():
    assert "larger than" in str(failure_of(b" " * (DOCUMENT_BYTES_LIMIT + 1)))


@pytest.mark.parametrize("yaml_allowed", [False, True])
@pytest.mark.parametrize(
    ("content", "field"),
    [
        (b'{"batch": 64,\n "batch": 8}', "batch"),
        (b'{"runs": [{"a": 1}, {"b": {"c": 1, "c": 1}}]}', "c"),
    ],
)
def test_a_field_that_is_given_twice_is_named(content, field, yaml_allowed):
    error = failure_of(content, yaml_allowed=yaml_allowed)
    assert error.problem == "is given twice in it"
    assert error.field.split(".")[-1] == field


def test_a_field_given_twice_in_json_is_named_by_its_path():
    assert failure_of(b'{"runs": [{}, {"b": {"c": 1, "c": 1}}]}').field == "runs.1.b.c"


def test_a_field_given_twice_in_yaml_is_named_with_its_line():
    assert failure_of(b"a: 1\nb: 2\na: 3\n", yaml_allowed=True).value == "line 3"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0100", 100),
        ("-010", -10),
        ("1_000", 1000),
        ("0x10", 16),
        ("1:30", "1:30"),
        ("1:30.5", "1:30.5"),
        ("1.5", 1.5),
    ],
)
def test_numbers_in_yaml_are_read_as_people_mean_them(text, value):
    assert parse_fields(b"a: " + text.encode(), source="it", yaml_allowed=True) == {"a": value}


def test_a_merged_field_may_be_given_again():
    content = b"base: &base {a: 1}\nown: {<<: *base, a: 2}\n"
    assert parse_fields(content, source="it", yaml_allowed=True)["own"] == {"a": 2}


def test_truncated_json_names_line_and_column():
    error = failure_of(b'{"schema_version": 1,\n "name"')
    assert error.value == "line 2 column 8"
    assert "is not valid JSON" in error.problem


@pytest.mark.parametrize("content", [b"", b"   ", b"\n"])
def test_empty_content_is_not_a_document(content):
    assert "is not valid JSON" in failure_of(content).problem


def test_empty_yaml_is_not_a_mapping():
    assert failure_of(b"", yaml_allowed=True).problem == "must be a mapping of fields"


def test_binary_content_is_told_apart_from_text():
    error = failure_of(b"\x80\x02}q\x00.")
    assert (error.problem, error.value) == ("is not UTF-8 text", "byte 0")


@pytest.mark.parametrize("content", [b"[1, 2]", b'"text"', b"3", b"null", b"true"])
def test_document_must_be_a_mapping(content):
    assert failure_of(content).problem == "must be a mapping of fields"


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_number_that_is_not_finite_is_named_by_its_path(number):
    error = failure_of(f'{{"a": [0, {{"b": {number}}}]}}'.encode())
    assert (error.field, error.problem) == ("a.1.b", "must be a finite number")


def test_deep_nesting_is_refused():
    error = failure_of(b'{"a": ' + b"[" * 200 + b"]" * 200 + b"}")
    assert error.problem == "is nested too deep"


def test_absurdly_deep_nesting_is_refused_without_overflowing_the_stack():
    assert "nested too deep" in failure_of(b'{"a": ' + b"[" * 100_000).problem


def test_integer_of_a_million_digits_is_refused():
    assert "absurd number" in failure_of(b'{"a": ' + b"9" * 1_000_000 + b"}").problem


def test_yaml_aliases_are_refused_before_they_multiply():
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}]" for n in range(1, 40)]
    error = failure_of("\n".join(lines).encode(), yaml_allowed=True)
    assert error.problem == "is not valid YAML: aliases stand for more than 100,000 values"
    assert error.value == "line 11"


def test_a_long_text_is_not_repeated_by_aliases_without_end():
    text = f"a: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 200)}]\n"
    assert "more than 100,000 values" in failure_of(text.encode(), yaml_allowed=True).problem


@pytest.mark.parametrize("text", ["a: &a [*a]", "a: &a {b: *a}", "a: &a\n  <<: *a\n"])
def test_yaml_that_stands_for_itself_is_refused(text):
    error = failure_of(text.encode(), yaml_allowed=True)
    assert error.problem == "is not valid YAML: an alias stands for what it is a part of"


def test_yaml_anchors_and_merge_keys_are_read_each_use_a_copy_of_its_own():
    text = b"a: &a {n: 1, items: [1, 2]}\nb: *a\nc:\n  <<: *a\n  n: 3\n"
    fields = parse_fields(text, source="it", yaml_allowed=True)
    assert fields == {
        "a": {"n": 1, "items": [1, 2]},
        "b": {"n": 1, "items": [1, 2]},
        "c": {"n": 3, "items": [1, 2]},
    }
    assert fields["a"]["items"] is not fields["b"]["items"] is not fields["c"]["items"]


def test_yaml_cannot_make_python_objects():
    error = failure_of(b"a: !!python/object/apply:os.getcwd []", yaml_allowed=True)
    assert "could not determine a constructor" in error.problem


def test_yaml_is_read_only_from_files_named_so(tmp_path):
    (tmp_path / "job.yaml").write_text("global_batch_size: 8\n")
    (tmp_path / "job.txt").write_text("global_batch_size: 8\n")
    assert read_fields(tmp_path / "job.yaml") == {"global_batch_size": 8}
    with pytest.raises(DocumentError, match="is not valid JSON"):
        read_fields(tmp_path / "job.txt")


def test_byte_order_mark_is_skipped():
    assert parse_fields(b'\xef\xbb\xbf{"a": 1}', source="it") == {"a": 1}


def test_misspelt_field_is_named_with_the_remedy():
    with pytest.raises(DocumentError) as caught:
        Job.from_fields({"global_batchsize": 8}, source="job.yaml")
    assert caught.value.field == "global_batchsize"
    assert caught.value.remedy == (
        "did you mean global_batch_size? remove the field or correct its spelling in job.yaml"
    )


def test_nested_field_is_named_by_its_dotted_path():
    with pytest.raises(DocumentError) as caught:
        Job.from_fields({"limits": {"tensor_parallel_degree": {"min": 0}}}, source="it")
    assert caught.value.field == "limits.tensor_parallel_degree.min"


def test_further_problems_are_counted():
    with pytest.raises(DocumentError, match=r"\(1 more after this\)"):
        Job.from_fields({"global_batch_size": 0, "sequence_length": 0}, source="it")


def test_schema_version_of_the_future_is_refused():
    with pytest.raises(DocumentError, match="schema_version"):
        Job.from_fields({"schema_version": 2}, source="it")


def test_quantities_may_be_written_with_units():
    level = {"name": "node", "bandwidth_bytes_per_second": "450 GB/s", "latency_seconds": "3 us"}
    group = {"name": "g", "device": "d", "node_count": 1, "devices_per_node": 8}
    cluster = Cluster.from_fields(
        {"name": "c", "node_groups": [group], "levels": [level]}, source="it"
    )
    assert cluster.levels is not None
    assert cluster.levels[0].bandwidth_bytes_per_second == 450e9
    assert cluster.levels[0].latency_seconds == pytest.approx(3e-6)


def test_plan_survives_its_own_json():
    plan = a_plan()
    assert Plan.from_fields(json.loads(plan.to_json()), source="it") == plan


def test_digest_depends_on_content_alone():
    assert a_job().digest() == a_job().digest()
    assert a_job().digest() != a_job(global_batch_size=32).digest()


def test_documents_cannot_be_changed():
    job = a_job()
    with pytest.raises(ValueError, match="frozen"):
        job.global_batch_size = 1  # type: ignore[misc]


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_a_mapping_or_a_document_error(content, yaml_allowed):
    """No input may escape as another exception: that would be a traceback for the user."""
    try:
        found: object = parse_fields(content, source="it", yaml_allowed=yaml_allowed)
    except DocumentError as error:
        found = error
    assert isinstance(found, (dict, DocumentError))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
        ),
        max_leaves=12,
    )
)
def test_any_json_is_a_job_or_a_document_error(value):
    fields = value if isinstance(value, dict) else {"limits": value}
    try:
        found: object = Job.from_fields(fields, source="it")
    except DocumentError as error:
        found = error
    assert isinstance(found, (Job, DocumentError))


def test_a_document_of_a_later_version_is_told_apart_from_a_wrong_one(tmp_path):
    path = tmp_path / "later.json"
    path.write_text('{"schema_version": 2, "unheard_of": 1, "global_batch_size": "many"}')
    with pytest.raises(DocumentError) as caught:
        Job.read(path)
    assert caught.value.field == "schema_version"
    assert "is of a later version than 1" in str(caught.value)
    assert "upgrade Meshwright" in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"global_batchsize": 8}, "did you mean global_batch_size?"),
        ({"limits": {"tensor_parallel_degre": 8}}, "did you mean tensor_parallel_degree"),
        ({"colour": "red"}, "; remove the field or correct its spelling in job.yaml"),
    ],
)
def test_an_unknown_field_names_its_neighbours_and_its_file(fields, said):
    with pytest.raises(DocumentError) as caught:
        Job.from_fields(fields, source="job.yaml")
    assert said in str(caught.value)
    assert "job.yaml" in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "remedy"),
    [
        ({"global_batch_size": 0}, "use 1 or more"),
        ({"limits": {"memory_headroom_ratio": 2}}, "use less than 1"),
        ({"tensor_float_32": 1}, "write true or false"),
        ({"sequence_length": "long"}, "write a whole number"),
        ({"precision": "bf17"}, "use 'bf16', 'fp16', 'fp32' or 'fp8'"),
    ],
)
def test_a_value_that_cannot_be_is_told_what_can(fields, remedy):
    with pytest.raises(DocumentError) as caught:
        Job.from_fields(fields, source="job.yaml")
    assert caught.value.remedy == f"{remedy} in job.yaml"


def test_a_missing_field_names_its_file():
    with pytest.raises(DocumentError, match=r"add the field in cluster\.yaml"):
        Cluster.from_fields({"name": "c"}, source="cluster.yaml")


@pytest.mark.parametrize("name", sorted(Job.model_fields))
@pytest.mark.parametrize("value", [[None, None], {"framework": [1]}, [[{}]], "\x00"])
def test_no_value_of_any_field_of_a_job_is_more_than_refused(name, value):
    """Whatever one field has, the others are as they are in a job that is right."""
    with pytest.raises(DocumentError) as caught:
        Job.from_fields({**a_job().model_dump(mode="json"), name: value}, source="job")
    assert name in str(caught.value)
