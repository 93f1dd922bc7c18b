"""Tables as CSV, Markdown and text; those in LaTeX have what a paper needs, and nothing that LaTeX would misread."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.command_line import call
from helpers.latex_tables import cells_of

from tightpipe.base.tables import LatexTable, aligned_text, csv_text, latex, markdown_text, write_latex
from tightpipe.experiments.summary import latex_table
from tightpipe.experiments.task import COLUMNS, row_from_text

TABLE = LatexTable(
    ["setting", "greedy_v", "best & co", "gap"],
    [["a_b", "0.2000", "0.1000*", "5.00%"], ["c", "0.30", "0.3000 (+0.1)", "-"], ["d", "-", "failed", "-"]],
    ["greedy_v", "best & co"],
    1,
    "100% of $x_i^2$ ~ {\\sum} #1 & more",
)


def test_a_table_has_the_parts_that_a_paper_needs() -> None:
    lines = latex(TABLE, "tab:x").splitlines()
    parts = [line.split("{")[0] if line.startswith("\\caption") else line for line in lines]
    assert [part for part in parts if not part.endswith(" \\\\")] == [
        "% needs \\usepackage{booktabs,adjustbox}", "\\begin{table}[tbp]", "\\centering", "\\caption", "\\label{tab:x}",
        "\\begin{adjustbox}{max width=\\textwidth, max totalheight=0.85\\textheight}", "\\begin{tabular}{lrrr}",
        "\\toprule", "\\midrule", "\\bottomrule", "\\end{tabular}", "\\end{adjustbox}", "\\end{table}",
    ]  # fmt: skip


def test_the_smallest_of_each_row_is_bold() -> None:
    head, first, tie, none = cells_of(latex(TABLE, "tab:x"))
    assert first == ["a\\_b", "0.2000", "\\textbf{0.1000*}", "5.00\\%"]
    assert tie == ["c", "\\textbf{0.30}", "\\textbf{0.3000 (+0.1)}", "-"]
    assert none == ["d", "-", "failed", "-"]
    assert not any("textbf" in cell for cell in head)


def test_what_has_no_rival_is_not_bold() -> None:
    alone = replace(TABLE, body=[["a", "0.2", "-", "1%"]])
    assert "textbf" not in latex(alone, "tab:x")
    assert "textbf" not in latex(replace(TABLE, compared=["greedy_v"]), "tab:x")


def test_special_characters_are_escaped() -> None:
    text = latex(TABLE, "tab:x")
    assert cells_of(text)[0] == ["setting", "greedy\\_v", "best \\& co", "gap"]
    caption = r"100\% of \$x\_i\textasciicircum{}2\$ \textasciitilde{} \{\textbackslash{}sum\} \#1 \& more"
    assert f"\\caption{{{caption}}}" in text
    bare = re.sub(r"\\[&%$#_{}]|\\text(bf|asciicircum|asciitilde|backslash)", "", caption)
    assert not set(bare) & set("&%$#_^~\\")


@pytest.mark.parametrize(
    ("name", "label"), [("t.tex", "t"), ("my_table 5%.tex", "my-table-5-"), ("a.b", "a")]
)
def test_the_label_is_the_file_s_name(name: str, label: str, tmp_path: Path) -> None:
    write_latex(TABLE, tmp_path / name)
    assert f"\\label{{tab:{label}}}\n" in (tmp_path / name).read_text()


def test_compare_writes_latex(tmp_path: Path) -> None:
    words = ("compare", "--settings", "toy-4x8", "--memory", "2p,3p", "--methods", "greedy-v,list,zb-h1")
    done = call(*words, "--latex", "paper.tex", "--caption", "All & more", "-o", "c.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "paper.tex").read_text()
    assert "\\caption{All \\& more}\n\\label{tab:paper}\n\\begin{adjustbox}" in text
    head, first, second = cells_of(text)
    assert head == ["problem", "memory", "greedy-v", "list", "zb-h1", "bound", "best gap"]
    assert first == ["toy-4x8", "2p", "\\textbf{0.0820}", "0.1385", "0.1765", "0.0427", "4.10\\%"]
    assert second[1] == "3p"


def test_the_bound_of_a_comparison_is_the_least_of_its_placements(tmp_path: Path) -> None:
    words = ("compare", "--settings", "toy-4x8", "--methods", "zb-h1,greedy-v", "-o", "c.csv")
    assert call(*words, "--latex", "t.tex", cwd=tmp_path).returncode == 0
    assert cells_of((tmp_path / "t.tex").read_text())[1][-2:] == ["0.0427", "4.10\\%"]


def test_sweeps_write_latex(tmp_path: Path, swept: dict[str, str]) -> None:
    rows = [row_from_text({**swept, **change}, 2) for change in (
        {"method": "greedy-v", "name": "greedy-v", "bubble_rate": "0.25", "cost": "120"},
        {"method": "cpsat", "name": "cpsat", "bubble_rate": "0.1", "cost": "100", "status": "optimal"},
    )]  # fmt: skip
    write_latex(latex_table("my_study", rows), tmp_path / "table.tex", "my_study")
    text = (tmp_path / "table.tex").read_text()
    assert cells_of(text)[1] == ["small", "0.2500", "\\textbf{0.1000*}", "0.1000", "0.00\\%"]
    assert "\\label{tab:my-study}" in text
    assert "\\caption{my\\_study. Bubble rate" in text


@pytest.fixture
def swept() -> dict[str, str]:
    known = {
        "key": "a", "problem": "small", "p": "4", "n": "8", "placement": "v", "chunks": "2", "backwards": "any", "discount": "own", "objective": "device_span",
        "comm": "own", "comm_ticks": "1", "memory": "2p", "costs": "true", "seed": "0", "threads": "1",
        "instance_hash": "i", "state": "done", "status": "feasible", "work": "90", "bound": "100", "attempts": "1",
        "finished_at": "2026-01-02T00:00:00Z",
    }  # fmt: skip
    return dict.fromkeys(COLUMNS, "") | known


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--caption x", "caption = 'x': is that of the table that --latex writes"),
        ("--latex none/t.tex", "none/t.tex: cannot be written: there is no such folder"),
    ],
)
@pytest.mark.parametrize("command", ["paper table 5 -o t.csv", "compare --settings toy-4x8 -o t.csv"])
def test_what_cannot_be_written_is_refused_at_once(
    command: str, words: str, message: str, tmp_path: Path
) -> None:
    done = call(*command.split(), *words.split(), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, f"tightpipe: {message}\n")
    assert list(tmp_path.iterdir()) == []


def test_a_table_in_markdown_says_which_columns_are_flush_right() -> None:
    text = markdown_text(["name", "cost"], [("a", 1), ("b", "-")], ("name",))
    assert text.splitlines() == ["| name | cost |", "| --- | ---: |", "| a | 1 |", "| b | - |"]


def test_an_aligned_table_has_heads_of_several_lines_and_no_blanks_at_the_end_of_a_line() -> None:
    text = aligned_text(["n", "name", "peak\nGB"], [["1", "long name", "2.5"], ["10", "b", "-"]], ("name",))
    assert text.splitlines() == [
        " n  name       peak",
        "                 GB",
        "--  ---------  ----",
        " 1  long name   2.5",
        "10  b             -",
    ]


def test_a_cell_without_a_value_is_empty_in_csv() -> None:
    assert csv_text(["a", "b"], [(None, "x,y"), (1.5, 2)]) == 'a,b\n,"x,y"\n1.5,2\n'
