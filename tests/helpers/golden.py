"""Published settings of V-schedules, with the orders and programs that belong to them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tightpipe import Instance, Memory

GOLDEN: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data/vschedule_settings.json").read_text()
)


def golden_instance(row: dict[str, Any]) -> Instance:
    return Instance.uniform(
        devices=row["p"],
        microbatches=row["n"],
        forward=row["f"],
        backward=row["b"],
        weight=row["w"],
        comm=row["c"],
        memory=Memory(row["mem_f"], row["mem_b"], row["mem_w"], row["max_mem"]),
    )
