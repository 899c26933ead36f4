"""Runs Sailor's own planner in its own interpreter and says how long it takes.

`python sailor_driver.py CHECKOUT GPU COUNT`: OPT-350M, for which the checkout brings profiles, on
so many devices of one kind. Its C++ planner has to be built first, as `libplanner` in
`sailor/Planner/sailor_planner/cpp_src`, with pybind11 and jsoncpp. Nothing of Meshwright is
imported, and nothing of Sailor is copied.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

ZONE = "us-central1-a"
ENDLESS_COST = 1e9


def main() -> None:
    """Plan once and print seconds, plans and the step of the first."""
    checkout, gpu, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    planners = checkout / "sailor" / "Planner"
    sys.path.insert(0, str(planners / "sailor_planner" / "cpp_src"))
    library = import_module("libplanner")
    with TemporaryDirectory() as folder:
        quotas = Path(folder) / "quotas.json"
        quotas.write_text(json.dumps({gpu: {ZONE: count}}))
        planner = library.SailorPlanner(
            f"{planners}/sailor_planner/profiles/OPT-350/",
            f"{checkout}/sailor/providers/multizone_bandwidths_het.json",
            f"{planners}/simulations/configs/training_config_opt_350.json",
            f"{planners}/llm_info.json",
            f"{checkout}/sailor/providers/gcp/communication_cost.json",
            True,
            True,
            str(quotas),
            "throughput",
        )
    start = time.perf_counter()
    plans = planner.get_sorted_plans({ZONE: {gpu: count}}, ENDLESS_COST, 0.0)
    seconds = time.perf_counter() - start
    best = plans[0].get_Tpp() if plans else None
    print(json.dumps({"seconds": seconds, "plan_count": len(plans), "step_seconds": best}))


if __name__ == "__main__":
    main()
