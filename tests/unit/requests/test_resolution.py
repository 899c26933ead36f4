"""What the user leaves out is filled in and stated; what cannot go together is refused."""

from __future__ import annotations

import pytest

from planner.errors import InputError
from planner.requests.resolution import (
    cluster_document,
    model_document,
    resolved_cluster,
    resolved_model,
    resolved_request,
)
from planner.schema.job import Calibration, Job
from tests.builders import a_cluster, a_job, a_model
from tests.learnt_runs import a_learnt_run


def request_of(job: Job, **model):
    return resolved_request(
        model_document("tiny", a_model(**model)), cluster_document("8xh100", a_cluster()), job
    )


def test_a_known_name_records_the_name_and_the_graph():
    model = resolved_model("llama-3-8b")
    assert model.given == "llama-3-8b"
    assert model.resolved.hidden_size == 4096
    assert len(model.digest) == 64


QWEN3_32B = {
    "model_type": "qwen3",
    "hidden_size": 5120,
    "intermediate_size": 25600,
    "num_hidden_layers": 64,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
}


def test_fields_without_a_name_are_named_by_kind_and_size():
    # Its card says 32.8B.
    assert resolved_model(QWEN3_32B).resolved.name == "qwen3 32.8B"
    given = {**QWEN3_32B, "_name_or_path": "Qwen/Qwen3-32B"}
    assert resolved_model(given).resolved.name == "Qwen/Qwen3-32B"


def test_an_unknown_name_is_never_read_as_a_path(tmp_path):
    """The service resolves names: a path in a request must not open a file."""
    path = tmp_path / "config.json"
    path.write_text("{}")
    with pytest.raises(InputError, match="is not a known model"):
        resolved_model(str(path))


def test_a_cluster_is_never_read_as_a_path(tmp_path):
    path = tmp_path / "cluster.yaml"
    path.write_text("name: x")
    with pytest.raises(InputError):
        resolved_cluster(str(path))


def test_sequence_length_defaults_to_the_models_maximum_up_to_4096():
    assert request_of(Job(), maximum_sequence_length=128).job.resolved.sequence_length == 128
    assert request_of(Job(), maximum_sequence_length=65536).job.resolved.sequence_length == 4096


def test_the_batch_defaults_to_four_million_tokens_in_whole_device_multiples():
    request = request_of(Job(sequence_length=100))
    # 2**22 / 100 = 41943.04 sequences, rounded up to a multiple of 8 devices
    assert request.job.resolved.global_batch_size == 41944


def test_assumptions_name_what_was_filled_in():
    request = request_of(Job(), maximum_sequence_length=128)
    assert any("sequence_length 128" in line for line in request.assumptions)
    assert any("global_batch_size" in line for line in request.assumptions)


def test_nothing_is_assumed_when_all_is_given():
    assert request_of(a_job()).assumptions == ()


def test_devices_that_a_calibration_leaves_out_are_stated():
    ours = Calibration(name="ours", runs=(a_learnt_run(device="a100-sxm4-80gb"),))
    (said,) = request_of(a_job(calibration=ours)).assumptions
    assert said.startswith("calibration ours has no runs under torch of h100-sxm5-80gb")
    own = ours.model_copy(update={"runs": (a_learnt_run(device="h100-sxm5-80gb"),)})
    assert request_of(a_job(calibration=own)).assumptions == ()


def test_learned_positions_bound_the_sequence():
    with pytest.raises(InputError, match="exceeds the model's 64 learned positions"):
        request_of(a_job(sequence_length=128), learned_position_count=64)


def test_the_given_job_is_kept_beside_the_resolved_one():
    request = request_of(Job())
    assert request.job.given["sequence_length"] is None
    assert request.job.resolved.sequence_length == 128


def test_an_absurd_parameter_count_is_refused():
    with pytest.raises(InputError, match="has more than"):
        request_of(a_job(), hidden_size=2**26, vocabulary_size=2**30)


@pytest.mark.parametrize("device", ["a100-sxm4-80gb", "v100-sxm2-32gb", "mi250x-128gb"])
def test_fp8_is_refused_where_it_is_not_in_hardware(device):
    with pytest.raises(InputError, match=rf"job\.precision: {device} has no fp8 .*; use bf16|fp16"):
        resolved_request(
            model_document("tiny", a_model()),
            resolved_cluster(f"8x{device}"),
            a_job(precision="fp8"),
        )


def test_one_kind_without_fp8_is_named():
    fields = {
        "name": "mixed",
        "node_groups": [
            {"name": "a", "device": "h100-sxm5-80gb", "node_count": 1, "devices_per_node": 8},
            {"name": "b", "device": "a100-sxm4-80gb", "node_count": 1, "devices_per_node": 8},
        ],
    }
    with pytest.raises(InputError, match="a100-sxm4-80gb has no fp8"):
        resolved_request(
            model_document("tiny", a_model()), resolved_cluster(fields), a_job(precision="fp8")
        )


def test_emulated_bf16_is_an_assumption():
    model, cluster = model_document("tiny", a_model()), resolved_cluster("8xv100-sxm2-32gb")
    (said,) = resolved_request(model, cluster, a_job()).assumptions
    assert said.startswith("v100-sxm2-32gb has no bf16 in hardware")


EARLIER = {
    "name": "ours",
    "stack": "torch",
    "devices": {"h100-sxm5-80gb": {"compute_efficiency_ratio": 0.9}},
}


def test_documents_with_a_calibration_of_an_earlier_version_are_read_as_they_were():
    fields = a_job().model_dump(mode="json")
    job = Job.from_fields({**fields, "calibration": EARLIER}, source="job")
    dumped = job.model_dump(mode="json")["calibration"]
    assert dumped["devices"]["h100-sxm5-80gb"]["compute_efficiency_ratio"] == 0.9
    assert dumped.keys() == {"name", "digest", "stack", "devices"}


def test_nothing_is_planned_with_a_calibration_of_an_earlier_version():
    fields = a_job().model_dump(mode="json")
    job = Job.from_fields({**fields, "calibration": EARLIER}, source="job")
    with pytest.raises(InputError, match=r"job\.calibration: has factors by device.*calibrate"):
        request_of(job)


@pytest.mark.parametrize("device", ["v100-sxm2-32gb", "mi250x-128gb", "cpu-gloo"])
def test_tf32_is_refused_where_products_of_fp32_have_none(device):
    with pytest.raises(InputError, match=rf"job\.tensor_float_32: {device} runs no .* TF32"):
        resolved_request(
            model_document("tiny", a_model()),
            resolved_cluster(f"1x1x{device}"),
            a_job(precision="fp32", tensor_float_32=True),
        )


def test_tf32_beside_another_number_format_is_refused():
    with pytest.raises(ValueError, match="precision is bf16; leave it out, or set precision fp32"):
        a_job(precision="bf16", tensor_float_32=True)
