"""Known models and devices: their facts, and tables of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from planner.hardware import device_names, device_profile
from planner.importers.models import model_names, read_model
from planner.units import GIB, format_bytes, format_count
from planner.workload.model import model_workload


def model_facts() -> list[dict[str, Any]]:
    """Return name, architecture, parameters and shape of every known model."""
    facts = []
    for name in model_names():
        _, graph = read_model(name)
        facts.append(
            {
                "name": name,
                "architecture": graph.architecture,
                "parameter_count": model_workload(graph).parameter_count,
                "block_count": graph.block_count,
                "hidden_size": graph.hidden_size,
                "vocabulary_size": graph.vocabulary_size,
                "maximum_sequence_length": graph.maximum_sequence_length,
            }
        )
    return facts


def models_view(facts: Sequence[dict[str, Any]]) -> Table:
    """Return one row per model."""
    table = Table(box=None, pad_edge=False)
    table.add_column("name", style="bold")
    table.add_column("architecture")
    for heading in ("parameters", "blocks", "hidden", "vocabulary", "longest sequence"):
        table.add_column(heading, justify="right")
    for model in facts:
        table.add_row(
            model["name"],
            model["architecture"],
            format_count(model["parameter_count"]),
            str(model["block_count"]),
            str(model["hidden_size"]),
            str(model["vocabulary_size"]),
            str(model["maximum_sequence_length"]),
        )
    return table


def device_facts() -> list[dict[str, Any]]:
    """Return memory, speed, networks and price of every device that has a profile, in SI."""
    facts = []
    for name in device_names():
        profile = device_profile(name)
        facts.append(
            {
                "name": name,
                "devices_per_node": None if profile.node is None else profile.node.device_count,
                "memory_bytes": profile.memory_gib * GIB,
                "memory_bytes_per_second": profile.memory_bandwidth_gb_per_second * 1e9,
                "peak_flop_per_second": {
                    precision.value: rate * 1e12
                    for precision, rate in profile.peak_tflop_per_second.items()
                },
                "levels": [
                    {
                        "name": level.name,
                        "device_count": level.device_count,
                        "bandwidth_bytes_per_second": level.bandwidth_gb_per_second * 1e9,
                    }
                    for level in profile.levels
                ],
                "price_per_device_hour": profile.price_per_device_hour,
            }
        )
    return facts


def devices_view(facts: Sequence[dict[str, Any]]) -> Table:
    """Return one row per device."""
    table = Table(box=None, pad_edge=False)
    table.add_column("name", style="bold")
    for heading in ("a node", "memory", "bandwidth", "bf16 peak", "network per device", "per hour"):
        table.add_column(heading, justify="right")
    for device in facts:
        bf16 = device["peak_flop_per_second"].get("bf16")
        networks = [
            f"{level['name']} {format_count(level['bandwidth_bytes_per_second'])}B/s"
            for level in device["levels"]
        ]
        table.add_row(
            device["name"],
            str(device["devices_per_node"] or "any"),
            format_bytes(device["memory_bytes"]),
            f"{format_count(device['memory_bytes_per_second'])}B/s",
            "-" if bf16 is None else f"{format_count(bf16)}FLOP/s",
            ", ".join(networks),
            f"${device['price_per_device_hour']:.2f}",
        )
    return table
