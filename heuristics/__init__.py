"""Schedule families: each is a function that takes an instance and returns an order.

`HEURISTICS` lists all of them by name.
"""

if __name__ != "tightpipe.heuristics":
    raise ImportError("import tightpipe.heuristics, not heuristics: the folder is a subpackage of tightpipe")

from dataclasses import replace

from tightpipe.base.errors import InputError
from tightpipe.model.microbatches import SEQUENCES
from tightpipe.model.placement import PLACEMENTS

from .both_ends import due_date_or_idle_free_order
from .dualpipe import dualpipe_order, dualpipe_v_order
from .greedy_v import greedy_v_order
from .list_schedule import adaptive_order, list_order
from .mixed import mixed_order
from .modulo import modulo_order
from .offloading import RULES
from .registry import ALL_PARAMS, PUBLISHED, Heuristic, V
from .v_beat import v_beat_order
from .v_families import v_adaptive_order

_BEST_FIRST = ("short-at-ends", "shortest-first", "arrival", "cyclic", "longest-first")
_ALL_LIMITS = "every limit that has a schedule"
HEURISTICS: dict[str, Heuristic] = {
    heuristic.name: heuristic if heuristic.sequences else replace(heuristic, sequences=("arrival",))
    for heuristic in (
        Heuristic(
            "greedy-v",
            greedy_v_order,
            V,
            "every limit if uniform, else most; made for 2p activations and more",
            "Qi et al., arXiv:2405.15362, and its authors' published schedule search",
            timed=True,
            pace=1.5e-6,
        ),
        Heuristic(
            "list",
            list_order,
            PLACEMENTS,
            _ALL_LIMITS,
            "list scheduling (Graham 1966) with the banker's algorithm (Dijkstra, EWD 108)",
            timed=True,
            always=True,
            sequences=_BEST_FIRST,
            ranks=True,
            pace=8e-6,
        ),
        Heuristic(
            "due-date",
            due_date_or_idle_free_order,
            PLACEMENTS,
            f"{_ALL_LIMITS}; made for 1.5p activations and more",
            "list scheduling by due dates (Jackson 1955), with the same banker's algorithm",
            timed=True,
            always=True,
            sequences=_BEST_FIRST,
            ranks=True,
            pace=1.2e-5,
        ),
        *PUBLISHED,
        Heuristic(
            "adaptive-1f1b",
            adaptive_order,
            ("linear", "loop"),
            f"{_ALL_LIMITS}; takes what there is",
            "the memory-aware adaptive schedule of Jiang et al., arXiv:2311.10418, section 5",
            timed=True,
            always=True,
            baseline=True,
            ranks=True,
            pace=4e-6,
        ),
        Heuristic(
            "dualpipe",
            dualpipe_order,
            ("bidirectional",),
            "p + 1 activations, and two copies of the parameters",
            "DeepSeek-AI, arXiv:2412.19437, section 3.2.1",
            pace=4e-5,
        ),
        Heuristic(
            "dualpipe-v",
            dualpipe_v_order,
            V,
            "2p + 1 activations",
            "Qi et al., 'DualPipe could be better without the Dual' (2025)",
            pace=4e-5,
        ),
        Heuristic(
            "v-beat",
            v_beat_order,
            V,
            "2p activations",
            "the proof of its optimality in docs/theorem.md",
            timed=True,
            pace=2e-6,
            trial_pace=1e-3,
            trials=2.0,
        ),
        Heuristic(
            "v-adaptive",
            v_adaptive_order,
            V,
            "from about 2p / 3 activations on",
            "Qi et al., arXiv:2405.15362, section 3; run at the costs of the instance",
            params="v_blocks",
            pace=1e-5,
            trial_pace=1e-3,
            trials=2.0,
        ),
        Heuristic(
            "mixed",
            mixed_order,
            PLACEMENTS,
            _ALL_LIMITS,
            "the other families' orders, with backwards that are fused where nobody waits",
            params=ALL_PARAMS,
            mixes=True,
            always=True,
            pace=2e-5,
            trial_pace=1e-3,
            trials=2.0,
        ),
        Heuristic(
            "modulo",
            modulo_order,
            PLACEMENTS,
            "most limits that have a schedule; made for scarce memory",
            "modulo scheduling (Rau, 'Iterative Modulo Scheduling', MICRO 1994)",
            params=ALL_PARAMS,
            pace=5e-7,
        ),
    )
}
"""The heuristics by name."""


def known_heuristic(name: str) -> Heuristic | None:
    """Return the heuristic of a name such as ``1f1b`` or ``1f1b:longest-first``; else None.

    Behind the colon stands a sequence of microbatches, or a rule by which activations leave their devices.

    Raises
    ------
    InputError
        If the heuristic exists, but neither a sequence nor a rule of this name.
    """
    family, colon, after = name.partition(":")
    found = HEURISTICS.get(family)
    if found is None or not colon:
        return found
    if after in RULES:
        return replace(found, name=name, copies=after)
    if after not in SEQUENCES:
        raise InputError(
            f"must be one of {', '.join((*SEQUENCES, *RULES))}",
            key=f"sequence or rule of {family}",
            value=after,
        )
    return replace(found, name=name, sequences=(after,))


__all__ = ["HEURISTICS", "SEQUENCES", "Heuristic", "known_heuristic"]
