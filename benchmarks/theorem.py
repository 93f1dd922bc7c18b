"""Study where the greedy V-schedule and V-Beat meet the formula of docs/theorem.md, on random settings.

``python benchmarks/theorem.py`` writes into results/theorem/ one line for each setting (instances.csv), the
number of exceptions to an observation about the greedy V-schedule (`theorem_cases.Case.observed`) on further
settings (observed.csv), tables (summary.md), and the map that docs/theorem.md shows. The same command
continues a run that was interrupted; ``--extend`` keeps the lines of a finished one, too. Where both the
greedy and V-Beat miss the formula, a search looks for a cheaper schedule and for a stronger bound. The search
is limited by the work that it counts and not by the clock, so that every run gives the same lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
from growing_table import CONDITIONS, conditions, conditions_text, fill, open_tables, run_script
from theorem_cases import Case, draw
from theorem_map import draw_map, has_short_weights

from tightpipe import NoScheduleError, solve
from tightpipe.base.files import write_text
from tightpipe.heuristics import HEURISTICS
from tightpipe.kernels.compiled import ensure_compiled
from tightpipe.model.metrics import cost
from tightpipe.model.result import Proof
from tightpipe.registry.starts import schedule_of
from tightpipe.solver.bounds.formulas import two_times_bound

ROOT = Path(__file__).parents[1]
RESULTS, PICTURE = ROOT / "results/theorem", ROOT / "docs/pictures/theorem-map.png"
SEED = 0  # of the searches; the settings have the seeds of theorem_cases.draw
EFFORT = 0.1  # limit of a search: its counted work, in seconds of one thread on a usual machine
COUNTS = {8: 1700, 4: 100, 6: 100, 10: 100}
"""The number of settings that are drawn at each memory limit; limits are in quarters of p activations."""
BLOCKS, BLOCK = 40, 500
"""The observation is tried on `BLOCKS` times `BLOCK` settings; each block has one line in observed.csv."""
FORMULA, OTHERWISE, OPEN = "greedy optimal by the formula", "optimum known otherwise", "open"
CLASSES = (FORMULA, OTHERWISE, OPEN)
COLUMNS = (
    *("quarters", "number", "devices", "microbatches", "forward", "backward", "weight", "comm", "held"),
    *(
        "work",
        "formula",
        "greedy",
        "v_beat",
        "promised",
        "observed",
        "cost",
        "bound",
        "proof",
        "class",
        "gap",
    ),
    *("seed", "effort", *CONDITIONS),
)
OBSERVED_COLUMNS = ("block", "settings", "exceptions", *CONDITIONS)
Row = dict[str, str]


def measure(effort: float, place: tuple[int, int]) -> dict[str, Any]:
    """Return the line of instances.csv for one setting.

    `place` holds the memory limit in quarters of p activations and the number of the setting, as `draw` takes
    them. `effort` limits the search, as in `solve`.

    The column `formula` has the bound named `two times`, which at 2p is at least the formula.
    """
    case = draw(*place)
    instance, found = (
        case.instance,
        dict(zip(("forward", "backward", "weight", "comm"), case.costs, strict=True)),
    )
    formula, greedy, beat = (
        two_times_bound(instance).value,
        _own_cost(case, "greedy-v"),
        _own_cost(case, "v-beat"),
    )
    known = [value for value in (greedy, beat) if value is not None]
    if formula in known:
        least, bound, proof = formula, formula, Proof.FORMULA
    else:
        result = solve(instance, "improve", effort=effort, workers=1, seed=SEED)
        least, bound, proof = min([*known, result.cost]), max(formula, result.bound), result.proof
    return {
        **dict(zip(("quarters", "number"), place, strict=True)),
        **{"devices": case.devices, "microbatches": case.microbatches, **found, "held": case.held},
        **{"work": case.work, "formula": formula, "greedy": greedy, "v_beat": beat},
        **{"promised": case.promised, "observed": case.observed, "cost": least, "bound": bound},
        **{"proof": proof, "class": classed(formula, greedy, least, bound)},
        **{"gap": f"{(least - bound) / least:.6f}", "seed": SEED, "effort": effort},
        **conditions(),
    }


def _own_cost(case: Case, name: str) -> int | None:
    """Return the cost of a heuristic's schedule, which is validated; None if the heuristic finds none."""
    try:
        return cost(schedule_of(case.instance, HEURISTICS[name]))
    except NoScheduleError:
        return None


def classed(formula: int, greedy: int | None, least: int, bound: int) -> str:
    """Return the class of a setting, one of `CLASSES`.

    `formula` is its bound named `two times`, `greedy` the cost of its greedy V-schedule, `least` its least
    known cost, and `bound` its best bound.
    """
    if greedy == formula:
        return FORMULA
    return OTHERWISE if least == bound else OPEN


def try_observation(size: int, block: int) -> dict[str, Any]:
    """Return the line of a block: on how many of its `size` settings the greedy misses the formula at 2p.

    Only settings for which `Case.observed` holds are drawn.
    """
    cases = [draw(8, -1 - block * size - k, lambda case: case.observed) for k in range(size)]
    missed = [case for case in cases if _own_cost(case, "greedy-v") != case.formula]
    return {"block": block, "settings": size, "exceptions": len(missed), **conditions()}


def places(counts: dict[int, int]) -> list[tuple[int, int]]:
    """Return the memory limit and the number of each setting, in the sequence of the table.

    Limits are in quarters of p activations; `counts` has the number of settings for each, as `COUNTS` does.
    """
    return [(quarters, number) for quarters, count in counts.items() for number in range(count)]


REGIONS: dict[str, Callable[[Row], bool]] = {
    "all": lambda _: True,
    "b ≤ f": lambda row: int(row["backward"]) <= int(row["forward"]),
    "b ≤ f, c ≥ 0.08 f": lambda row: int(row["backward"]) <= int(row["forward"]) <= int(row["comm"]) / 0.08,
    "b ≤ f, 2w ≤ b + 2c": lambda row: int(row["backward"]) <= int(row["forward"]) and has_short_weights(row),
    "b ≤ f, 2w > b + 2c": lambda row: (
        int(row["backward"]) <= int(row["forward"]) and not has_short_weights(row)
    ),
    "observed (b ≤ f, c ≤ f, c ≤ b + w, 2w ≤ b + 2c)": lambda row: row["observed"] == "True",
    "proven for V-Beat (second theorem)": lambda row: row["promised"] == "True",
    "b > f": lambda row: int(row["backward"]) > int(row["forward"]),
}
"""Parts of the settings at 2p, each with the condition on the lines of instances.csv that belong to it."""


def markdown(rows: Sequence[Row], observed: Sequence[Row]) -> str:
    """Return the tables of docs/theorem.md, and the sentence about the observation."""
    at_2p = [row for row in rows if row["quarters"] == "8"]
    limits = dict.fromkeys(row["quarters"] for row in rows)
    by_limit = {f"{int(q) / 4:g}p": [row for row in rows if row["quarters"] == q] for q in limits}
    by_region = {name: [row for row in at_2p if holds(row)] for name, holds in REGIONS.items()}
    tried, missed = (sum(int(row[key]) for row in observed) for key in ("settings", "exceptions"))
    said = f"Of {tried} further settings in the observed region, the greedy misses the formula on {missed}."
    return "\n\n".join([_table("settings at 2p", by_region), _table("memory limit", by_limit), said])


def _table(head: str, parts: dict[str, list[Row]]) -> str:
    columns = [head, "number", "greedy meets the formula", "V-Beat meets it", "optimum known", "largest gap"]
    lines = [columns, ["---"] * len(columns), *([name, *_counts(rows)] for name, rows in parts.items())]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _counts(rows: Sequence[Row]) -> list[str]:
    greedy, beat = (sum(row[name] == row["formula"] for row in rows) for name in ("greedy", "v_beat"))
    known = sum(row["class"] != OPEN for row in rows)
    gap = max((float(row["gap"]) for row in rows), default=0.0)
    return [str(len(rows)), str(greedy), str(beat), str(known), f"{gap:.2%}"]


def study(
    counts: dict[int, int], blocks: int, size: int, effort: float, workers: int, keep: bool = False
) -> None:
    """Compute the lines of both CSV files, and write the page with the tables, and the map.

    Parameters
    ----------
    counts
        Number of settings for each memory limit, as in `COUNTS`.
    blocks, size
        Number of blocks on which the observation is tried, and number of settings in a block.
    effort
        Limit of each search, as in `solve`.
    workers
        Number of processes.
    keep
        Whether lines of an earlier run stay, also if it has finished.
    """
    RESULTS.mkdir(parents=True, exist_ok=True)
    ensure_compiled()
    tables = {RESULTS / "instances.csv": COLUMNS, RESULTS / "observed.csv": OBSERVED_COLUMNS}
    with open_tables(tables, (counts, blocks, size, effort), keep):
        print(_study(counts, blocks, size, effort, workers), end="")


def _study(counts: dict[int, int], blocks: int, size: int, effort: float, workers: int) -> str:
    """Compute the lines that the tables lack, write the page and the map, and return the page."""
    rows = fill(
        RESULTS / "instances.csv",
        COLUMNS,
        places(counts),
        lambda row: (int(row["quarters"]), int(row["number"])),
        partial(measure, effort),
        workers,
    )
    observed = fill(
        RESULTS / "observed.csv",
        OBSERVED_COLUMNS,
        range(blocks),
        lambda row: int(row["block"]),
        partial(try_observation, size),
        workers,
    )
    efforts = " and ".join(dict.fromkeys(row["effort"] for row in rows))
    said = f"Searches with an effort of {efforts} s and seed {SEED}; {conditions_text(rows)}."
    page = f"{markdown(rows, observed)}\n\n{said}\n"
    write_text(RESULTS / "summary.md", page)
    at_2p = [row for row in rows if row["quarters"] == "8"]
    draw_map(at_2p, CLASSES, PICTURE)
    return page


@click.command()
@click.option("--workers", type=click.IntRange(1, 1024), default=2, show_default=True, help="Processes.")
@click.option("--effort", type=float, default=EFFORT, show_default=True, help="Seconds of each search.")
@click.option("--extend", is_flag=True, help="Compute only lines that the files lack.")
def main(workers: int, effort: float, extend: bool) -> None:
    """Compute the lines of both files, and write the tables and the map."""
    study(COUNTS, BLOCKS, BLOCK, effort, workers, extend)


if __name__ == "__main__":
    run_script(partial(main, standalone_mode=False))
