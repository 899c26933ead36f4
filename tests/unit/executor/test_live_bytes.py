"""Live bytes are counted by storage, from first sight until they are freed."""

from __future__ import annotations

import torch

from executor.telemetry import LiveBytes, MemoryMeter

FLOATS = 1000
BYTES = 4 * FLOATS


def test_the_peak_counts_what_lives_at_once() -> None:
    """Two tensors live together; the third comes after both are gone."""
    with LiveBytes(()) as counter:
        first = torch.ones(FLOATS)
        second = first + 1
        del first, second
        third = torch.ones(FLOATS)
    assert counter.peak_bytes == 2 * BYTES
    del third


def test_views_share_their_storage() -> None:
    with LiveBytes(()) as counter:
        whole = torch.ones(FLOATS)
        half = whole[: FLOATS // 2].view(2, -1)
    assert counter.peak_bytes == BYTES
    del half


def test_held_tensors_count_from_the_start() -> None:
    held = torch.ones(FLOATS)
    counter = LiveBytes((held,))
    assert counter.peak_bytes == BYTES


def test_a_storage_that_is_emptied_and_filled_in_place_counts_once() -> None:
    """FSDP frees and takes the storage of whole parameters so."""
    held = torch.ones(FLOATS)
    counter = LiveBytes((held,))
    with counter, counter.resizes():
        held.untyped_storage().resize_(0)
        other = torch.ones(FLOATS)
        held.untyped_storage().resize_(BYTES)
    assert counter.peak_bytes == 2 * BYTES
    del other


def test_tensors_on_the_meta_device_weigh_nothing() -> None:
    with LiveBytes(()) as counter:
        shape = torch.ones(FLOATS, device="meta") + 1
    assert counter.peak_bytes == 0
    del shape


def test_a_step_that_was_not_metered_has_no_peak_on_a_cpu() -> None:
    meter = MemoryMeter(torch.device("cpu"))
    with meter.live_tensors(()):
        kept = torch.ones(FLOATS)
    assert meter.peak_bytes() == BYTES
    meter.start()
    assert meter.peak_bytes() is None
    del kept
