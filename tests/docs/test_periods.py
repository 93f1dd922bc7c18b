"""The table of docs/blocks.md holds what results/periods.csv holds, and that is possible."""

from __future__ import annotations

import csv
import sys

import pytest
from documents import ROOT

pytestmark = pytest.mark.source_tree
sys.path.append(str(ROOT / "benchmarks"))


def rows() -> list[dict[str, str]]:
    with (ROOT / "results/periods.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_page_shows_the_file() -> None:
    from periods import markdown

    assert markdown(rows()) in (ROOT / "docs/blocks.md").read_text()


def test_no_period_is_below_its_bound_and_more_microbatches_need_no_more_time_each() -> None:
    best: dict[tuple[str, str], float] = {}
    for row in rows():
        cell = row["devices"], row["memory"]
        period, bound = float(row["period"]), float(row["bound"])
        assert 1 <= bound <= period <= best.get(cell, period), row
        best[cell] = period


def test_every_number_of_devices_and_limit_is_measured() -> None:
    from periods import COPIES, DEVICES, MEMORY

    assert len(rows()) == len(DEVICES) * len(MEMORY) * len(COPIES)
