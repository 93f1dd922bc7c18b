"""Schedule families: each is a function that takes an instance and returns an order.

`HEURISTICS` lists all of them by name.
"""

if __name__ != "tightpipe.heuristics":
    raise ImportError("import tightpipe.heuristics, not heuristics: the folder is a subpackage of tightpipe")

from dataclasses import replace

from tightpipe.base.errors import InputError
from tightpipe.model.placement import PLACEMENTS
from tightpipe.model.sequences import SEQUENCES

from .dualpipe import dualpipe_order, dualpipe_v_order
from .due_date import due_date_order
from .greedy_v import greedy_v_order
from .list_schedule import adaptive_order, list_order
from .mixed import mixed_order
from .modulo import modulo_order
from .registry import ALL_PARAMS, PUBLISHED, Heuristic
from .v_beat import v_beat_order
from .v_families import v_adaptive_order

_BEST_FIRST = ("short-at-ends", "shortest-first", "arrival", "cyclic", "longest-first")
_ARRIVAL = ("arrival",)
HEURISTICS: dict[str, Heuristic] = {
    heuristic.name: heuristic if heuristic.sequences else replace(heuristic, sequences=_ARRIVAL)
    for heuristic in (
        Heuristic(
            name="greedy-v",
            make=greedy_v_order,
            timed=True,
            pace=1.5e-6,
            placements=("v",),
            memory="every limit if uniform, else most; made for 2p activations and more",
            source="Qi et al., arXiv:2405.15362, and its authors' published schedule search",
        ),
        Heuristic(
            name="list",
            make=list_order,
            timed=True,
            sequences=_BEST_FIRST,
            ranks=True,
            pace=2.5e-5,
            placements=PLACEMENTS,
            memory="every limit that has a schedule",
            source="list scheduling (Graham 1966) with the banker's algorithm (Dijkstra, EWD 108)",
        ),
        Heuristic(
            name="due-date",
            make=due_date_order,
            timed=True,
            sequences=_BEST_FIRST,
            ranks=True,
            pace=4e-5,
            placements=PLACEMENTS,
            memory="every limit that has a schedule; made for 1.5p activations and more",
            source="list scheduling by due dates (Jackson 1955), with the same banker's algorithm",
        ),
        *PUBLISHED,
        Heuristic(
            name="adaptive-1f1b",
            make=adaptive_order,
            timed=True,
            ranks=True,
            pace=4e-6,
            placements=("linear", "loop"),
            memory="every limit that has a schedule; takes what there is",
            source="the memory-aware adaptive schedule of Jiang et al., arXiv:2311.10418, section 5",
        ),
        Heuristic(
            name="dualpipe",
            make=dualpipe_order,
            placements=("bidirectional",),
            memory="p + 1 activations, and two copies of the parameters",
            source="DeepSeek-AI, arXiv:2412.19437, section 3.2.1",
        ),
        Heuristic(
            name="dualpipe-v",
            make=dualpipe_v_order,
            placements=("v",),
            memory="2p + 1 activations",
            source="Qi et al., 'DualPipe could be better without the Dual' (2025)",
        ),
        Heuristic(
            name="v-beat",
            make=v_beat_order,
            pace=2e-6,
            placements=("v",),
            memory="2p activations",
            source="the proof of its optimality in docs/theorem.md",
        ),
        Heuristic(
            name="v-adaptive",
            make=v_adaptive_order,
            params="v_blocks",
            pace=1e-5,
            trial_pace=1e-3,
            trials=2.0,
            placements=("v",),
            memory="from about 2p / 3 activations on",
            source="Qi et al., arXiv:2405.15362, section 3; run at the costs of the instance",
        ),
        Heuristic(
            name="mixed",
            make=mixed_order,
            params=ALL_PARAMS,
            mixes=True,
            pace=2e-5,
            trial_pace=1e-3,
            trials=1.5,
            placements=PLACEMENTS,
            memory="every limit that has a schedule",
            source="the other families' orders, with backwards that are fused where nobody waits",
        ),
        Heuristic(
            name="modulo",
            make=modulo_order,
            params=ALL_PARAMS,
            pace=5e-7,
            placements=PLACEMENTS,
            memory="most limits that have a schedule; made for scarce memory",
            source="modulo scheduling (Rau, 'Iterative Modulo Scheduling', MICRO 1994)",
        ),
    )
}
"""The heuristics by name."""


def known_heuristic(name: str) -> Heuristic | None:
    """Return the heuristic of a name, which may end in a sequence like ``1f1b:longest-first``; else None.

    Raises
    ------
    InputError
        If the heuristic exists, but the sequence does not.
    """
    family, colon, sequence = name.partition(":")
    found = HEURISTICS.get(family)
    if found is None or not colon:
        return found
    if sequence not in SEQUENCES:
        raise InputError(
            f"must be one of {', '.join(SEQUENCES)}", key=f"sequence of {family}", value=sequence
        )
    return replace(found, name=name, sequences=(sequence,))


__all__ = ["HEURISTICS", "SEQUENCES", "Heuristic", "known_heuristic"]
