"""The committed tables of the published settings hold what the present code would claim of them."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tightpipe.settings import load_settings
from tightpipe.solver.bounds.formulas import best_bound

pytestmark = pytest.mark.source_tree
RESULTS = Path(__file__).parents[1] / "results"


@pytest.mark.parametrize("name", ["paper_table", "paper_table_long"])
def test_no_row_is_older_than_the_bounds_by_formula(name: str) -> None:
    """A bound below that of a formula, which takes milliseconds, was found by a code without the formula."""
    settings = load_settings()
    with (RESULTS / f"{name}.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * len({row["setting"] for row in rows})
    for row in rows:
        instance = settings[row["setting"]].instance(int(row["m_offset"]))
        assert best_bound(instance).value <= int(row["bound"]) <= int(row["cost"]), row
        assert (row["status"] == "optimal") == (row["bound"] == row["cost"]), row
