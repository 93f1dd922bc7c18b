"""The class `Heuristic` describes a schedule family; the families of the literature with a fixed order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from tightpipe.base.errors import InputError, NoScheduleError
from tightpipe.kernels.arrays import Ints
from tightpipe.model.instance import Instance
from tightpipe.model.microbatches import renamed, representative, sequence_of
from tightpipe.model.placement import PLACEMENTS
from tightpipe.model.schedule import Order
from tightpipe.params.budget import UNLIMITED, Budget

from .family import (
    cheapest,
    eager_one_f_one_b_order,
    gpipe_order,
    one_f_one_b_order,
    refuse_infeasible,
    seq_one_f_one_b_order,
    seq_zero_bubble_order,
    within_limits,
    zb_h1_order,
    zb_h2_order,
)
from .greedy_v import zb_auto_order
from .interleaved import (
    interleaved_order,
    interleaved_orders,
    overlapped_interleaved_order,
    overlapped_one_f_one_b_order,
    seq_interleaved_order,
)
from .v_families import one_f_one_b_v_order, v_half_order, v_min_order, v_zb_order

ALL_PARAMS = "*"
"""Says that a heuristic takes all parameters, because it runs parts that have parameters of their own."""


class HeuristicError(InputError):
    """A heuristic that is not tightpipe's own breaks its contract, the `rule`; the message names both."""

    def __init__(self, rule: str, name: str) -> None:
        super().__init__(rule, key="heuristic", value=name)


@dataclass(frozen=True, slots=True)
class Heuristic:
    """A schedule family: the functions that make its orders, and its description.

    Parameters
    ----------
    name
        Name of the family, as given to `tightpipe.solve` and ``--method``.
    make
        Function that returns the order for an instance of one iteration; it raises `NoScheduleError` if the
        family has no order for the instance.
    placements
        Names of the placements that the family can schedule.
    memory
        In words, how much memory the family's orders take, or at which memory limits the family has orders.
    source
        Paper and section that describe the family.
    flushless
        Function that returns the order for an instance of several iterations without a flush; None if the
        family has no such order.
    params
        Name of the parameters in `SolveParams` that `make` takes as its argument `params`, or `ALL_PARAMS` if
        it takes the whole `SolveParams`; empty if it takes none.
    mixes
        Whether its order is that of another heuristic unless fused backwards save time, so that no search has
        to start from it.
    slices
        Whether `make` knows slices. Another heuristic schedules whole microbatches, whose operations are then
        cut into slices that run one after another.
    timed
        Whether `make` takes a budget as its second argument, and ends when the time of the budget is up.
    always
        Whether it has an order whenever an instance has one. Where a stage has no backward and its F needs
        memory beside a full microbatch, that is one microbatch after another.
    pace
        Seconds per operation that the heuristic takes on a usual machine, if only roughly. A search with a
        time limit runs the fastest heuristics first, and decides by `seconds` for which of those that are
        not `timed` there is time.
    sequences
        Names of the `SEQUENCES` in which it runs microbatches that differ; the cheapest order of these is
        taken. None if `make` is given every instance as it is.
    baseline
        Whether frameworks run its orders, so that a search of microbatches that differ starts from the
        cheapest of these in any of the `SEQUENCES` too, and never ends above it.
    ranks
        Whether `make` takes a sequence of microbatches that differ as its argument `sequence`. Otherwise it
        is given an instance with microbatches that are alike, and those of its order are renamed.
    trial_pace, trials
        What a heuristic takes besides that tries many rules within a fixed amount of work: `trial_pace`
        seconds per operation, but at most `trials` seconds.
    copies
        Which activations leave, and when, where an instance lets them: a name in `offloading.RULES`, or empty
        for the usual rule.
    fixed
        Function that returns all orders that `make` chooses from, if these depend on the placement and the
        number of microbatches alone. None if costs decide about orders, or if very many are possible.

    Raises
    ------
    InputError
        If `name`, `memory` or `source` is not a string, the name is empty, `placements` is not a tuple of
        known placements or is empty, or `make` is not a function.
    """

    name: str
    make: Callable[..., Order]
    placements: tuple[str, ...]
    memory: str
    source: str
    flushless: Callable[[Instance], Order] | None = None
    params: str = ""
    mixes: bool = False
    slices: bool = False
    timed: bool = False
    always: bool = False
    sequences: tuple[str, ...] | None = None
    baseline: bool = False
    ranks: bool = False
    pace: float = 4e-6
    trial_pace: float = 0.0
    trials: float = 0.0
    copies: str = ""
    fixed: Callable[[Instance], list[Order]] | None = None

    def __post_init__(self) -> None:
        for key in ("name", "memory", "source"):
            text = getattr(self, key)
            if not isinstance(text, str) or (key == "name" and not text):
                raise InputError("must be a text", key=key, value=text)
        if not callable(self.make):
            raise InputError("must be a function Instance -> Order", key="make", value=self.make)
        known = isinstance(self.placements, tuple) and set(self.placements) <= set(PLACEMENTS)
        if not known or not self.placements:
            rule = f"must be a tuple of names out of {', '.join(PLACEMENTS)}"
            raise InputError(rule, key="placements", value=self.placements)

    @property
    def sorts(self) -> bool:
        """Whether it tries several sequences of microbatches that differ."""
        return self.sequences is not None and len(self.sequences) > 1

    def seconds(self, operations: int) -> float:
        """Return roughly how long the heuristic takes for an instance of so many operations, in seconds."""
        return self.pace * operations + min(self.trial_pace * operations, self.trials)

    def order(self, instance: Instance, budget: Budget = UNLIMITED) -> Order:
        """Return the order for all iterations of the instance.

        Parameters
        ----------
        instance
            The problem.
        budget
            Has the parameters, and limits the time of a heuristic that is `timed`; another heuristic does not
            look at the clock.

        Raises
        ------
        InputError
            If the family's function refuses the placement of the instance.
        NoScheduleError
            If the family has no schedule for the instance.
        InfeasibleError
            If the instance has no schedule at all.
        HeuristicError
            If the family's function returns something other than an order.
        """
        if instance.classes:
            refuse_infeasible(instance)
        if instance.differ and self.sequences is not None:
            return self._in_best_sequence(instance, self.sequences, budget)
        if instance.iterations == 1:
            return self._ordered(self._make(budget), instance)
        if instance.flush:
            block = instance.microbatches // instance.iterations
            once = self._ordered(self._make(budget), replace(instance, microbatches=block, iterations=1))
            return _repeated(once, instance.iterations, block)
        if self.flushless is None:
            raise NoScheduleError(f"{self.name} has no form without a flush between iterations")
        return self._ordered(self.flushless, instance)

    def _in_best_sequence(self, instance: Instance, names: tuple[str, ...], budget: Budget) -> Order:
        """Return the cheapest order of those that run the microbatches in the sequences of these names."""
        orders: list[Order] = []
        refusals: list[NoScheduleError] = []
        for name in names:
            if orders and budget.left <= 0:
                break
            try:
                orders.append(self._in_sequence(instance, sequence_of(instance, name), budget))
            except NoScheduleError as refusal:
                refusals.append(refusal)
        if not orders:
            raise refusals[0]
        return cheapest(instance, orders)

    def _in_sequence(self, instance: Instance, sequence: Ints, budget: Budget) -> Order:
        if self.ranks:
            return self._ordered(partial(self._make(budget), sequence=sequence), instance)
        try:
            return self._renamed(instance, representative(instance), sequence, budget)
        except NoScheduleError:
            return self._renamed(instance, representative(instance, largest=True), sequence, budget)

    def _renamed(self, instance: Instance, alike: Instance, sequence: Ints, budget: Budget) -> Order:
        """Return the order for microbatches that are alike, with those of a sequence in their place."""
        order = renamed(instance, self._ordered(self._make(budget), alike), sequence)
        return within_limits(instance, self.name, order)

    def _make(self, budget: Budget) -> Callable[..., Order]:
        options: dict[str, object] = {"budget": budget} if self.timed else {}
        if self.params:
            whole = self.params == ALL_PARAMS
            options["params"] = budget.params if whole else getattr(budget.params, self.params)
        return partial(self.make, **options) if options else self.make

    def _ordered(self, make: Callable[[Instance], Order], instance: Instance) -> Order:
        order = make(instance)
        if not isinstance(order, Order):
            raise HeuristicError(f"must return an Order, not {type(order).__name__}", self.name)
        return order


def _repeated(order: Order, times: int, block: int) -> Order:
    """Return an order that runs `order` several times, each time with the next `block` microbatches."""
    pieces, joined = [], []
    for device in range(order.devices):
        for k in range(times):
            pieces.append(order.operations[order.rows(device)] + np.array([0, 0, k * block]))
            joined.append(order.pairs[order.rows(device)])
    return Order(np.concatenate(pieces), order.offsets * times, np.concatenate(joined))


_ZERO_BUBBLE = "Qi et al., arXiv:2401.10241, section"
_SEQ = "Sun et al., arXiv:2406.03488, section 3"
_CONTROLLABLE = "Qi et al., arXiv:2405.15362, section 3"
_TRIED: dict[str, Any] = {"params": "v_blocks", "pace": 5e-6, "trial_pace": 4.5e-4, "trials": 0.4}
"""What a family whose building block is tried at the costs of the instance takes, and its parameters."""
_COMBINED = "combined 1F1B of Megatron-Core; pairs as in DeepSeek-AI, arXiv:2412.19437, section 3.2.1"
_PENDING = "some of them as pending W's"
LINEAR, LOOP, V = ("linear",), ("loop",), ("v",)

PUBLISHED: tuple[Heuristic, ...] = (
    Heuristic(
        "gpipe",
        gpipe_order,
        LINEAR,
        "n activations",
        "Huang et al., arXiv:1811.06965, section 2.3",
        pace=3e-6,
    ),
    Heuristic(
        "1f1b",
        one_f_one_b_order,
        LINEAR,
        "p activations on the first device, one fewer on each next",
        "Narayanan et al., arXiv:2006.09503, section 3; without a flush section 3.1",
        flushless=one_f_one_b_order,
        baseline=True,
        pace=2e-6,
        fixed=lambda instance: [one_f_one_b_order(instance)],
    ),
    Heuristic(
        "seq-1f1b",
        seq_one_f_one_b_order,
        LINEAR,
        "p + k - 1 slices on the first device, one fewer on each next; p microbatches if whole",
        _SEQ,
        slices=True,
        pace=2e-6,
    ),
    Heuristic(
        "seq-interleaved",
        seq_interleaved_order,
        LOOP,
        "(v + 1)p + k - 2 slices on the first device, two fewer on each next",
        _SEQ,
        slices=True,
    ),
    Heuristic("seq-zb", seq_zero_bubble_order, LINEAR, f"p + k - 1 slices; {_PENDING}", _SEQ, slices=True),
    Heuristic(
        "eager-1f1b",
        eager_one_f_one_b_order,
        LINEAR,
        "2p - 1 activations on the first device, two fewer on each next",
        "Zhuang et al., arXiv:2211.05322, section 4",
        flushless=eager_one_f_one_b_order,
    ),
    Heuristic(
        "interleaved-1f1b",
        interleaved_order,
        LOOP,
        "(v + 1)p - 1 activations on the first device, two fewer on each next, if p divides n",
        "Narayanan et al., arXiv:2104.04473, section 2.2",
        params="interleaved",
        baseline=True,
        fixed=interleaved_orders,
    ),
    Heuristic(
        "1f1b-overlap",
        overlapped_one_f_one_b_order,
        LINEAR,
        "2p activations on the first device, two fewer on each next",
        _COMBINED,
    ),
    Heuristic(
        "interleaved-overlap",
        overlapped_interleaved_order,
        LOOP,
        "(v + 1)p activations on the first device, two fewer on each next, if p divides n",
        _COMBINED,
        params="interleaved",
    ),
    Heuristic("zb-h1", zb_h1_order, LINEAR, f"p activations; {_PENDING}", f"{_ZERO_BUBBLE} 2"),
    Heuristic("zb-h2", zb_h2_order, LINEAR, f"2p - 1 activations; {_PENDING}", f"{_ZERO_BUBBLE} 2"),
    Heuristic(
        "zb-auto",
        zb_auto_order,
        LINEAR,
        "any limit per device; p activations give ZB-1p, 2p ZB-2p",
        f"{_ZERO_BUBBLE} 3.1",
        params=ALL_PARAMS,
    ),
    Heuristic(
        "v-half",
        v_half_order,
        V,
        "about half of 1F1B's: 2 * ((p + 2) // 2) activations",
        _CONTROLLABLE,
        **_TRIED,
    ),
    Heuristic(
        "v-min",
        v_min_order,
        V,
        "about a third of 1F1B's: 2 * ((p + 4) // 3) activations",
        _CONTROLLABLE,
        **_TRIED,
    ),
    Heuristic("v-zb", v_zb_order, V, "that of 1F1B: 2p activations", _CONTROLLABLE, **_TRIED),
    Heuristic(
        "1f1b-v",
        one_f_one_b_v_order,
        V,
        "about two thirds of 1F1B's",
        _CONTROLLABLE,
        baseline=True,
        pace=2e-6,
    ),
)
"""The families, in the sequence in which ``tightpipe methods`` lists them."""
