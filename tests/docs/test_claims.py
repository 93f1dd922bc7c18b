"""Numbers that the answers of docs/faq.md take from results/ are those that lie there."""

from __future__ import annotations

import csv

from documents import ROOT

ANSWERS = " ".join((ROOT / "docs/faq.md").read_text().split())


def saved_time(devices: set[str]) -> list[float]:
    """What the method best saves of the greedy's cost on the published settings with so many devices."""
    cost: dict[tuple[str, str], int] = {}
    with (ROOT / "results/paper_table.csv").open() as file:
        for row in csv.DictReader(file):
            cost[row["setting"], row["method"]] = int(row["cost"])
    settings = {name for name, _ in cost if name.split("-")[1].split("x")[0] in devices}
    return [1 - cost[name, "best"] / cost[name, "greedy-v"] for name in settings]


def test_what_the_published_settings_save_is_what_the_answer_says() -> None:
    assert "0.1 to 0.4 % of the time on 24 and 32" in ANSWERS
    large = saved_time({"24", "32"})
    assert (round(100 * min(large), 1), round(100 * max(large), 1)) == (0.1, 0.4)
    assert "nothing on 16 devices" in ANSWERS
    assert set(saved_time({"16"})) == {0}
