"""The table that docs/blocks.md shows holds what results/periods.csv holds, and that is possible."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest
from helpers.documents import ROOT

from tightpipe.base.sources import engine_version

pytestmark = pytest.mark.source_tree
sys.path.append(str(ROOT / "benchmarks"))


def rows() -> list[dict[str, str]]:
    with (ROOT / "results/periods.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_page_shows_the_table_of_the_file() -> None:
    from periods import markdown

    assert (ROOT / "results/periods.md").read_text().startswith(markdown(rows()))
    assert '--8<-- "results/periods.md"' in (ROOT / "docs/blocks.md").read_text()


def test_no_period_is_below_its_bound_and_more_microbatches_need_no_more_time_each() -> None:
    best: dict[tuple[str, str], float] = {}
    for row in rows():
        cell = row["devices"], row["memory"]
        period, bound = float(row["period"]), float(row["bound"])
        assert 1 <= bound <= period <= best.get(cell, period), row
        best[cell] = period


def test_lines_of_another_engine_do_not_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from growing_table import open_table
    from periods import COLUMNS

    path = tmp_path / "periods.csv"
    open_table(path, COLUMNS)
    head = ",".join(COLUMNS) + "\n"
    assert path.read_text() == head
    mine, other = (
        ",".join({**dict.fromkeys(COLUMNS, "1"), "engine": engine}.values()) + "\n"
        for engine in (engine_version(), "0.0.9+1234567")
    )
    path.write_text(head + other + mine)
    open_table(path, COLUMNS)
    assert path.read_text() == head + mine
    assert path.with_name("periods.csv.bak").read_text() == head + other + mine
    assert "1 row(s) of engine 0.0.9+1234567" in capsys.readouterr().err
    open_table(path, COLUMNS)
    assert capsys.readouterr().err == ""


def test_every_number_of_devices_and_limit_is_measured() -> None:
    from periods import COPIES, DEVICES, MEMORY

    assert len(rows()) == len(DEVICES) * len(MEMORY) * len(COPIES)
