"""Tables 5 and 8 of the zero-bubble paper."""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

import pytest
from helpers.command_line import call
from helpers.latex_tables import cells_of

from tightpipe.base.sources import engine_version
from tightpipe.cli import comparing, main
from tightpipe.experiments.presets import Cell, table_cells, to_csv, wide


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


@pytest.fixture
def command(cells: list[Cell], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words of the command for the table, whose cells it does not compute again."""
    monkeypatch.setattr(comparing.presets, "table_cells", {cells[0].table: cells}.__getitem__)
    return ["paper", "table", str(cells[0].table), "-o", "t.csv"]


@pytest.mark.parametrize("cells", [8], indirect=True)
def test_table_writes_latex(command: list[str], tmp_path: Path) -> None:
    done = call(*command, "--latex", "t.tex", "--json", cwd=tmp_path)
    assert done.returncode == 0
    head, *rows = cells_of((tmp_path / "t.tex").read_text())
    assert head[:4] == ["model", "p", "n", "1F1B"]
    assert len(rows) == 9
    for row in rows:
        rates = [float(re.search(r"0\.\d{4}", cell)[0]) for cell in row[3:]]  # type: ignore[index]
        bold = [rate for rate, cell in zip(rates, row[3:], strict=True) if cell.startswith("\\textbf{")]
        assert bold == [min(rates)]
        assert re.fullmatch(r"0\.\d{4} \(\+0\.\d{4}\)", row[head.index("1F1B-I")])


@pytest.mark.parametrize("cells", [5], indirect=True)
def test_latex_on_standard_output_stands_alone(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["tightpipe", *command, "--latex", "-"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    said = capfd.readouterr()
    assert said.out.startswith("% needs \\usepackage{booktabs,adjustbox}\n\\begin{table}")
    assert said.out.endswith("\\end{table}\n")
    assert "cells agree" in said.err
