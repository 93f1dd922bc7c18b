"""Numbers that docs/faq.md and the front page take from results/ are those that lie there."""

from __future__ import annotations

import csv

from documents import ROOT

ANSWERS = " ".join((ROOT / "docs/faq.md").read_text().split())
FRONT_PAGE = " ".join((ROOT / "README.md").read_text().split())


def saved_time(devices: set[str]) -> list[float]:
    """What the method best saves of the greedy's cost on the settings with so many devices, in ten minutes."""
    cost: dict[tuple[str, str], int] = {}
    with (ROOT / "results/paper_table_long.csv").open() as file:
        for row in csv.DictReader(file):
            cost[row["setting"], row["method"]] = int(row["cost"])
    settings = {name for name, _ in cost if name.split("-")[1].split("x")[0] in devices}
    return [1 - cost[name, "best"] / cost[name, "greedy-v"] for name in settings]


def test_what_the_published_settings_save_is_what_the_answer_says() -> None:
    assert "0.1 to 0.4 % of the cost on six of the nine settings with 24 or 32 devices" in ANSWERS
    large = saved_time({"24", "32"})
    better = [share for share in large if share >= 0.001]
    assert (len(better), len(large)) == (6, 9)
    assert (round(100 * min(better), 1), round(100 * max(better), 1)) == (0.1, 0.4)
    assert "nothing on 16 devices" in ANSWERS
    assert set(saved_time({"16"})) == {0}
    assert "six of the nine published settings with 24 or 32 devices" in FRONT_PAGE
