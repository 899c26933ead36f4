"""What the page of a fleet shows: measured over predicted steps by cluster and stack."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from api.dashboard import quantities
from api.dashboard.charts import Figure, interval_marks, panel
from api.services.fleet_history import RARE_CHANCE, FleetGroup, FleetRun

_HEIGHT = 300
_HEADROOM = 1.1
_LEAST_MARGIN = timedelta(hours=1)  # beside a lone run the axis had parts of a second


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """The runs of one cluster and stack with their chart; `verdict` says whether they drift."""

    group: FleetGroup
    verdict: str
    figure: Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetView:
    """All groups, those that drift first."""

    groups: tuple[GroupView, ...]


def fleet_view(groups: Iterable[FleetGroup]) -> FleetView:
    """Return the groups arranged for their page."""
    return FleetView(
        groups=tuple(
            GroupView(group=group, verdict=_verdict(group), figure=_figure(group.runs))
            for group in groups
        )
    )


def _verdict(group: FleetGroup) -> str:
    count, outside = group.recent_count, group.outside_count
    if count == 1:
        return f"The only run is {'outside' if outside else 'within'} its predicted interval."
    verb = "is" if outside == 1 else "are"
    head = f"{outside} of the newest {count} runs {verb} outside of their predicted intervals"
    rarity = f"if predictions hold, as many are in {quantities.percent(group.chance)} of cases"
    if group.has_drifted:
        slower = sum(run.ratio > run.high_ratio for run in group.recent)
        way = "slower" if 2 * slower >= outside else "faster"
        return (
            f"{head}, most of them {way}: {rarity}. Look for what changed (network, drivers, other "
            "jobs), or calibrate on these runs."
        )
    return f"{head}: {rarity}; below {RARE_CHANCE:.0%} it is a drift."


def _figure(runs: Sequence[FleetRun]) -> Figure:
    """Return each run's ratio over the time that it began, and its predicted interval around 1."""
    places = [quantities.machine_moment(run.at) for run in runs]
    ends = [end for run in runs for end in (run.ratio, run.low_ratio, run.high_ratio)]
    layout = panel(x_title="Started", y_title="Measured / predicted step", height=_HEIGHT)
    first, last = min(run.at for run in runs), max(run.at for run in runs)
    margin = max((last - first) / 20, _LEAST_MARGIN)
    shown = [quantities.machine_moment(at) for at in (first - margin, last + margin)]
    layout["xaxis"] |= {"type": "date", "nticks": 4, "tickangle": 0, "range": shown}
    layout["yaxis"] |= {
        "range": [min(ends) / _HEADROOM, max(ends) * _HEADROOM],
        "automargin": False,  # beside dates plotly does not come to an end with margins of its own
    }
    ones = [1.0] * len(runs)
    intervals = interval_marks(places, ones, [(run.low_ratio, run.high_ratio) for run in runs])
    return {"data": [intervals, _ratios(runs, places)], "layout": layout}


def _ratios(runs: Sequence[FleetRun], places: Sequence[str]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "measured",
        "x": list(places),
        "y": [run.ratio for run in runs],
        "marker": {
            "size": 10,
            "color": ["var(--bad)" if run.is_outside else "var(--accent)" for run in runs],
            "symbol": ["x" if run.is_outside else "circle" for run in runs],
        },
        "hovertext": [
            f"run {run.run_id[:16]}: {quantities.exact_seconds(run.measured_seconds)} measured, "
            f"{quantities.exact_seconds(run.predicted_seconds)} predicted"
            for run in runs
        ],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }
