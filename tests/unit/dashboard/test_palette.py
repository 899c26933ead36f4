"""Colours: enough contrast with the surface, and apart from each other for every reader."""

import itertools
import re
from pathlib import Path

import pytest

import api.dashboard
from api.dashboard.palette import ACTION_PARTS, BUBBLE, IN_TURN, MEMORY_PARTS, STEP_PARTS
from planner.schema.plan import MemoryBreakdown, StepBreakdown

CSS = (Path(api.dashboard.__file__).parent / "static" / "palette.css").read_text(encoding="utf-8")
LIGHT, DARK = CSS.split("@media (prefers-color-scheme: dark)")
SCHEMES = {"light": LIGHT, "dark": DARK}
# Machado, Oliveira and Fernandes 2009, doi:10.1109/TVCG.2009.113, severity 1.0, linear RGB.
VISIONS = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
}
PIPELINE_PARTS = (*ACTION_PARTS, IN_TURN, BUBBLE)
JUST_APART = 0.06  # distance in OKLab; about three just noticeable differences


def colours(scheme: str) -> dict[str, tuple[float, float, float]]:
    """Return each custom property's colour in linear RGB."""
    found = re.findall(r"--([a-z0-9-]+): #([0-9a-f]{6});", SCHEMES[scheme])
    return {name: linear(digits) for name, digits in found}


def linear(digits: str) -> tuple[float, float, float]:
    """Return linear RGB of `rrggbb` (IEC 61966-2-1)."""
    parts = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return red, green, blue


def contrast(one: tuple[float, float, float], other: tuple[float, float, float]) -> float:
    """Return WCAG 2.2's contrast ratio."""
    bright, dim = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def luminance(colour: tuple[float, float, float]) -> float:
    red, green, blue = colour
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def seen(colour: tuple[float, float, float], vision: str) -> tuple[float, float, float]:
    """Return OKLab (Ottosson 2020) of the colour as that vision has it."""
    red, green, blue = (
        max(sum(weight * part for weight, part in zip(row, colour, strict=True)), 0.0)
        for row in VISIONS[vision]
    )
    long = (0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue) ** (1 / 3)
    middle = (0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue) ** (1 / 3)
    short = (0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue) ** (1 / 3)
    return (
        0.2104542553 * long + 0.7936177850 * middle - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * middle + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * middle - 0.8086757660 * short,
    )


def test_every_cause_of_time_has_a_part():
    assert [part.name for part in STEP_PARTS] == list(StepBreakdown.model_fields)


def test_every_use_of_memory_has_a_part():
    assert [part.name for part in MEMORY_PARTS] == list(MemoryBreakdown.model_fields)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_part_has_a_colour_and_a_swatch(scheme):
    known = colours(scheme)
    for part in STEP_PARTS + MEMORY_PARTS + PIPELINE_PARTS:
        assert part.colour_class in known
        assert f".{part.colour_class} {{ fill: {part.colour}; }}" in CSS


@pytest.mark.parametrize("scheme", SCHEMES)
def test_bars_have_a_contrast_of_3_with_the_surface(scheme):
    known = colours(scheme)
    low = {
        part.name: round(ratio, 2)
        for part in STEP_PARTS + MEMORY_PARTS + PIPELINE_PARTS
        if (ratio := contrast(known[part.colour_class], known["surface"])) < 3
    }
    assert low == {}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize(
    "parts", [STEP_PARTS, MEMORY_PARTS, PIPELINE_PARTS], ids=["time", "memory", "pipeline"]
)
def test_parts_stay_apart(scheme, vision, parts):
    """For readers with protanopia and deuteranopia too."""
    known = {part.name: seen(colours(scheme)[part.colour_class], vision) for part in parts}
    close = [
        (one, other)
        for one, other in itertools.combinations(known, 2)
        if sum((a - b) ** 2 for a, b in zip(known[one], known[other], strict=True)) ** 0.5
        < JUST_APART
    ]
    assert close == []


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    ("ink", "paper"),
    [
        *itertools.product(["text", "muted", "accent", "bad"], ["bg", "surface", "surface-2"]),
        ("on-accent", "accent"),
        ("on-accent", "accent-hover"),
        ("good", "surface"),
        ("good", "good-bg"),
        ("bad", "bad-bg"),
        ("warn", "warn-bg"),
        ("text", "bad-bg"),
        ("text", "warn-bg"),
    ],
)
def test_words_have_a_contrast_of_4_5(scheme, ink, paper):
    known = colours(scheme)
    assert contrast(known[ink], known[paper]) >= 4.5


@pytest.mark.parametrize("scheme", SCHEMES)
def test_borders_of_controls_have_a_contrast_of_3(scheme):
    known = colours(scheme)
    assert contrast(known["border-strong"], known["surface"]) >= 3
