"""How full a device a plan may fill: the headroom, and the chance of fitting that is asked for."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from planner.cost.fitting import Room, room
from planner.errors import DocumentError
from planner.hardware import device_profile
from planner.importers.models import read_model
from planner.planning import estimate, plan, resolved_cluster, resolved_model
from planner.schema.job import Calibration, Job, LearntPeaks, Limits
from planner.schema.plan import Plan
from planner.units import GIB
from planner.workload.model import model_workload
from tests.builders import a_job

LLAMA = model_workload(read_model("llama-3-8b")[1])
H100 = device_profile("h100-sxm5-80gb")
DEVICE_BYTES = 80.0 * GIB


def a_room(limits: Limits) -> Room:
    return room(LLAMA, H100, a_job(limits=limits))


def a_room_by_hand(**changes: float) -> Room:
    fields = {
        "kept_ratio": 0.95,
        "likely_ratio": 0.8,
        "runtime_bytes": 2.0 * GIB,
        "slack_ratio": 0.1,
        "given_back_ratio": 1.0,
        "error_ratio": 0.134,
    }
    return Room(**{**fields, **changes})


def test_a_job_asks_for_a_chance_of_95_percent_unless_told_otherwise() -> None:
    assert Job.from_fields({}, source="job").limits.fits_probability == 0.95


def test_a_document_may_ask_for_no_chance() -> None:
    fields = {"limits": {"fits_probability": None}}
    assert Job.from_fields(fields, source="job").limits.fits_probability is None


def test_the_headroom_alone_where_no_chance_is_asked_for() -> None:
    own = a_room(Limits(memory_headroom_ratio=0.1, fits_probability=None))
    assert own.capacity_bytes(DEVICE_BYTES) == pytest.approx(72.0 * GIB)


def test_an_even_chance_takes_no_more_room_than_the_headroom() -> None:
    own = a_room(Limits(memory_headroom_ratio=0.05, fits_probability=0.5))
    assert own.capacity_bytes(DEVICE_BYTES) == pytest.approx(76.0 * GIB)


def test_a_wide_headroom_binds_before_a_likely_fit() -> None:
    own = a_room(Limits(memory_headroom_ratio=0.5, fits_probability=0.95))
    assert own.capacity_bytes(DEVICE_BYTES) == pytest.approx(40.0 * GIB)


def test_a_likely_fit_leaves_room_for_the_error_and_counts_on_slack_given_back() -> None:
    """exp(-1.64485 x 0.15 / 1.281552) = 0.824875; k = 1.1 / 1.018 = 1.080550.

    2 + 1.080550 x (0.824875 x 80 - 2) = 71.144 GiB where the runtime takes 2 GiB.
    """
    likely = a_room(Limits(fits_probability=0.95)).likely_ratio
    own = a_room_by_hand(likely_ratio=likely, slack_ratio=0.1, given_back_ratio=1.1 / 1.018)
    assert likely == pytest.approx(0.824875, abs=1e-6)
    assert own.capacity_bytes(DEVICE_BYTES) / GIB == pytest.approx(71.144, abs=1e-3)


def test_an_allocator_that_gives_all_its_slack_back_leaves_the_bare_quantile() -> None:
    own = a_room_by_hand(kept_ratio=1.0, slack_ratio=0.0)
    assert own.capacity_bytes(DEVICE_BYTES) == pytest.approx(64.0 * GIB)


def test_a_device_that_its_runtime_fills_has_no_room() -> None:
    own = a_room_by_hand(runtime_bytes=20.0 * GIB, given_back_ratio=1.1 / 1.018)
    assert own.capacity_bytes(1.0 * GIB) == 0.0


@pytest.mark.parametrize("chance", [None, 0.5, 0.8, 0.95, 0.999])
@pytest.mark.parametrize("headroom", [0.0, 0.05, 0.3])
def test_the_device_of_a_capacity_has_that_capacity(chance: float | None, headroom: float) -> None:
    own = a_room(Limits(memory_headroom_ratio=headroom, fits_probability=chance))
    for capacity in (4.0 * GIB, 40.0 * GIB, 400.0 * GIB):
        memory = own.device_bytes(capacity)
        assert own.capacity_bytes(memory) == pytest.approx(capacity, rel=1e-12)


def test_a_plan_fits_with_the_chance_that_was_asked_for() -> None:
    limits = Limits(fits_probability=0.99)
    job = Job(global_batch_size=128, sequence_length=8192, limits=limits)
    found = plan(resolved_model("llama-3-8b"), resolved_cluster("8xh100-sxm5-80gb"), job)
    assert isinstance(found, Plan)
    assert found.prediction.fits_probability >= 0.99


def test_a_strategy_below_the_chance_does_not_fit_and_above_it_does() -> None:
    """75.13 GiB of the 79.09 that the device has: a chance of 86.2%."""
    asked = {"global_batch_size": 512, "sequence_length": 4096}
    named = resolved_model("llama-3-8b"), resolved_cluster("8xh100-sxm5-80gb")
    even = plan(*named, Job(**asked, limits=Limits(fits_probability=0.5)))
    assert isinstance(even, Plan)
    assert even.prediction.fits_probability == pytest.approx(0.862, abs=5e-4)
    for chance, fits in ((0.85, True), (0.87, False)):
        job = Job(**asked, limits=Limits(fits_probability=chance))
        assert estimate(*named, job, even.strategy).prediction.fits is fits


def test_certainty_is_refused() -> None:
    with pytest.raises(DocumentError, match="less than 1"):
        Job.from_fields({"limits": {"fits_probability": 1.0}}, source="job")


def learnt_room(log_ratio: float, error_ratio: float) -> Room:
    peaks = LearntPeaks(log_ratio=log_ratio, error_ratio=error_ratio, trial_count=2)
    return room(LLAMA, H100, a_job(calibration=Calibration(name="trials", peaks=peaks)))


def test_peaks_that_trials_found_larger_by_a_fifth_take_a_fifth_more() -> None:
    """1.2 (2 + 1.1 x 40) = 55.2 GiB of 40 GiB of tensors where the runtime takes 2 GiB."""
    shipped, own = a_room(Limits()), learnt_room(math.log(1.2), 0.134)
    tensors = 40.0 * GIB
    peaks = [one.runtime_bytes + (1.0 + one.slack_ratio) * tensors for one in (shipped, own)]
    assert peaks[1] == pytest.approx(1.2 * peaks[0])
    assert own.given_back_ratio == shipped.given_back_ratio == pytest.approx(1.1 / 1.018)


def test_what_trials_leave_less_open_may_be_fuller() -> None:
    """C = R + k (exp(-1.64485 x 0.1) 80 - R), exp(-0.164485) = 0.848330, R = 1.5, k = 1.08055.

    1.5 + 1.080550 x (67.8664 - 1.5) = 73.212 GiB.
    """
    own = replace(learnt_room(0.0, 0.1), runtime_bytes=1.5 * GIB)
    assert own.capacity_bytes(DEVICE_BYTES) / GIB == pytest.approx(73.212, abs=1e-3)
    shipped = replace(a_room(Limits()), runtime_bytes=1.5 * GIB)
    assert own.capacity_bytes(DEVICE_BYTES) > shipped.capacity_bytes(DEVICE_BYTES)


def test_no_peak_is_taken_for_less_than_its_tensors() -> None:
    assert learnt_room(-0.5, 0.134).slack_ratio == pytest.approx(0.0)
