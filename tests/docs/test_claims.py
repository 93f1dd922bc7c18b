"""Numbers that docs and the front page take from results/ are those that lie there."""

from __future__ import annotations

import csv
import sys
from statistics import geometric_mean

from helpers.documents import ROOT

sys.path.append(str(ROOT / "benchmarks"))
from plans import BASELINES, CASES, page_table  # in no package

ANSWERS = " ".join((ROOT / "docs/faq.md").read_text().split())
FRONT_PAGE = " ".join((ROOT / "README.md").read_text().split())


def saved_time(devices: set[str]) -> list[float]:
    """What the method best saves of the greedy's cost on the settings with so many devices, in ten minutes."""
    cost: dict[tuple[str, str], int] = {}
    with (ROOT / "results/paper_table_long.csv").open() as file:
        for row in csv.DictReader(file):
            cost[row["problem"], row["method"]] = int(row["cost"])
    settings = {name for name, _ in cost if name.split("-")[1].split("x")[0] in devices}
    return [1 - cost[name, "best"] / cost[name, "greedy-v"] for name in settings]


def test_what_the_published_settings_save_is_what_the_answer_says() -> None:
    assert "0.02 to 0.4 % of the cost on the nine settings with 24 or 32 devices" in ANSWERS
    large = saved_time({"24", "32"})
    assert len(large) == 9
    assert (round(100 * min(large), 2), round(100 * max(large), 1)) == (0.02, 0.4)
    assert "nothing on 16 devices" in ANSWERS
    assert set(saved_time({"16"})) == {0}
    assert "Better schedules** for all nine settings with 24 or 32 devices" in FRONT_PAGE


def saved_bubbles(devices: set[str]) -> list[float]:
    """What `best` saves of the greedy's bubble, in percent, where it saves any; the schedules must be optimal."""
    by_method: dict[str, dict[str, dict[str, str]]] = {}
    with (ROOT / "results/paper_table_long.csv").open() as file:
        for row in csv.DictReader(file):
            if row["p"] in devices:
                by_method.setdefault(row["problem"], {})[row["method"]] = row
    assert {rows["best"]["status"] for rows in by_method.values()} == {"optimal"}
    cheaper = [rows for rows in by_method.values() if rows["best"]["cost"] != rows["greedy-v"]["cost"]]
    saved = [1 - int(rows["best"]["bubble"]) / int(rows["greedy-v"]["bubble"]) for rows in cheaper]
    return [len(by_method), len(by_method) - len(cheaper), *sorted(round(100 * share, 1) for share in saved)]


def test_the_table_of_the_front_page_is_what_was_measured() -> None:
    rows = {}
    for line in (ROOT / "README.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 5 and cells[0][0].isdigit():
            rows[cells[0]] = cells[1:]
    assert set(rows) == {"4 and 8", "16", "24", "32"}
    for devices, (count, proven, greedy, saved) in rows.items():
        settings, optimal, *savings = saved_bubbles(set(devices.split(" and ")))
        assert (int(count), int(proven), int(greedy)) == (settings, settings, optimal)
        joint = " and " if len(savings) == 2 else " to "
        assert saved == (f"{savings[0]}{joint}{savings[-1]} %" if savings else "")


def test_the_table_of_plans_is_what_was_measured() -> None:
    page = (ROOT / "docs/plan.md").read_text()
    with (ROOT / "results/plans.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["objective"] for row in rows} == {"step"}
    assert {row["model"] for row in rows} == {case.model for case in CASES}
    assert "from plans import page_table" in page  # which makes the table when the page is built
    assert len(page_table(rows).splitlines()) == len(CASES) + 2
    means = [geometric_mean(float(row[f"over {b}"]) for row in rows if row[f"over {b}"]) for b in BASELINES]
    said = f"geometric means are {means[0]:.2f} over the default and {means[1]:.2f} over the best"
    assert said in " ".join(page.split())
    proven = sum(float(row["gap"]) == 0 for row in rows)
    assert f"Proven optimal: {proven} of the ten plans" in " ".join(page.split())
