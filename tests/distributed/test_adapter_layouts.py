"""Every layout that the planner searches for adapters starts and trains, whatever the base's bits.

All begin with the same weights, and give the losses of plain data parallelism, which
`test_quantized` and `test_weights` hold to plain torch, PEFT and bitsandbytes. Layouts of a mesh
take turns with the formats of frozen weights.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("bitsandbytes", reason="no package bitsandbytes")

from tests.distributed.adapter_layouts import layouts
from tests.distributed.group import RankGroup
from tests.distributed.parity import cases
from tests.distributed.test_quantized import IN_8_BITS, NESTED

pytestmark = pytest.mark.distributed

BASES: dict[str, dict[str, Any] | None] = {
    "4-bits-nested": NESTED,
    "8-bits": IN_8_BITS,
    "4-bits": {**NESTED, "bnb_4bit_use_double_quant": False},
    "16-bits": None,
}
LAYOUTS = {
    f"pp{mesh[0]}-dp{mesh[1]}x{mesh[2]}-cp{mesh[3]}-tp{mesh[4]}-{base}": (
        mesh,
        base,
        found[place :: len(BASES)],
    )
    for count in (2, 4)
    for mesh, found in layouts(count).items()
    for place, base in enumerate(BASES)
    if found[place :: len(BASES)]
}
PLAIN = {"data_parallel_degree": 2, "zero_stage": 0}


@pytest.mark.parametrize(
    "name",
    cases(
        {n: n for n in LAYOUTS},
        always={"pp1-dp1x2-cp1-tp2-4-bits-nested", "pp4-dp1x1-cp1-tp1-8-bits"},
    ),
)
def test_every_searched_layout_of_adapters_trains(
    name: str,
    two_ranks: RankGroup,
    four_ranks: RankGroup,
    tmp_path: Path,
) -> None:
    mesh, base, strategies = LAYOUTS[name]
    given = {"fields": BASES[base], "folder": str(tmp_path)}
    (expected,) = two_ranks.run("adapter_layouts", strategies=[PLAIN], **given)["losses"]
    ranks = four_ranks if math.prod(mesh) == 4 else two_ranks
    found = ranks.run("adapter_layouts", strategies=strategies, **given)["losses"]
    assert expected[1] != pytest.approx(expected[0], rel=1e-3)
    for losses in found:
        assert losses == pytest.approx(expected, rel=2e-6)
