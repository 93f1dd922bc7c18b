"""Tables 5 and 8 of the zero-bubble paper, and the gallery."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tightpipe import Schedule, validate
from tightpipe.core.engine_version import engine_version
from tightpipe.experiments import gallery as module
from tightpipe.experiments.gallery import draw_gallery, gallery
from tightpipe.experiments.published_tables import Cell, table_cells, to_csv, wide
from tightpipe.heuristics import HEURISTICS


@pytest.fixture(scope="module", params=[5, 8])
def cells(request: pytest.FixtureRequest) -> list[Cell]:
    return table_cells(request.param)


def test_all_cells_but_interleaving_agree_to_four_decimals(cells: list[Cell]) -> None:
    others = [cell for cell in cells if cell.column != "1F1B-I"]
    assert len(others) == {5: 60, 8: 36}[cells[0].table]
    assert [cell for cell in others if cell.difference] == []


def test_interleaving_is_above_the_paper_by_p_communications(cells: list[Cell]) -> None:
    """The paper's 1F1B-I costs p c less than a schedule that waits for every message; see docs/results.md."""
    for cell in cells:
        if cell.column == "1F1B-I":
            assert 0 < cell.difference < 0.006


def test_csv_and_wide_form_hold_the_same_numbers(cells: list[Cell]) -> None:
    rows = list(csv.DictReader(to_csv(cells).splitlines()))
    assert [(float(r["published"]), float(r["ours"])) for r in rows] == [(c.published, c.ours) for c in cells]
    assert {r["engine"] for r in rows} == {engine_version()}
    header, body = wide(cells)
    assert len(body) * (len(header) - 3) == len(cells)
    assert body[0][3].split() == [f"{cells[0].published:.4f}", f"{cells[0].ours:.4f}", "+0.0000"]


@pytest.fixture(scope="module")
def drawn() -> list[tuple[str, Schedule]]:
    return gallery()


def test_the_gallery_draws_every_family_valid(drawn: list[tuple[str, Schedule]]) -> None:
    assert {label.split(",")[0] for label, _ in drawn} == {*HEURISTICS, "block"}
    assert all(validate(schedule.instance, schedule) == [] for _, schedule in drawn)
    assert {schedule.order.devices for _, schedule in drawn} == {4}


def test_the_gallery_is_drawn(
    drawn: list[tuple[str, Schedule]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "gallery", lambda _: drawn)
    draw_gallery(tmp_path / "gallery.svg")
    svg = (tmp_path / "gallery.svg").read_text()
    assert svg.count("bubble rate") == len(drawn)
    assert f"<!-- tightpipe {engine_version()} -->" in svg
