"""Chance words: what is said of the chance that a strategy fits, and of the one asked for."""

from __future__ import annotations

from planner.schema.job import Limits
from planner.schema.plan import Prediction


def chance_words(prediction: Prediction, limits: Limits) -> str:
    """Return `chance 97.2%`, and what is asked for where that is more: `chance 82.9%, 95% ...`."""
    words = f"chance {prediction.fits_probability:.1%}"
    asked = limits.fits_probability
    if asked is None or prediction.fits_probability >= asked:
        return words
    return f"{words}, {percent(asked)} asked for"


def fit_words(prediction: Prediction) -> str:
    """Return whether it fits; what is likely to fit, and not as likely as asked, is too tight."""
    if prediction.fits:
        return "fits"
    return "is too tight" if prediction.fits_probability >= 0.5 else "does not fit"


def fitting_words(limits: Limits) -> str:
    """Return what no plan does where none is found: `fits with a chance of 95%`."""
    asked = limits.fits_probability
    return "fits" if asked is None else f"fits with a chance of {percent(asked)}"


def room_words(limits: Limits) -> str:
    """Return what a need for device memory may exceed: `... at a chance of fitting of 95%`."""
    if limits.fits_probability is None:
        return "there is room for"
    return f"there is room for at a chance of fitting of {percent(limits.fits_probability)}"


def percent(ratio: float) -> str:
    """Return a ratio such as 0.999 as `99.9%`, with the digits that it has."""
    return f"{ratio * 100.0:.10g}%"
