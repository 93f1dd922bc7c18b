"""Random planning problems with a placement each, and all candidates of such a pair as the search takes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from tightpipe import Placement
from tightpipe.model.costs import Objective
from tightpipe.planning import (
    Batch,
    Candidate,
    Cluster,
    Layer,
    Model,
    PlanningProblem,
    Recomputation,
    SearchSpace,
)
from tightpipe.planning.cluster import Gradients, Network
from tightpipe.planning.configuration import Configuration
from tightpipe.planning.device_bound_kernel import NEVER
from tightpipe.planning.model_arrays import OptionSets
from tightpipe.planning.partitions import Partitions, partitions_of
from tightpipe.planning.sharding import NOT_SHARED, Sharding

KINDS = [("linear", 1), ("v", 2), ("loop", 1), ("loop", 2), ("loop", 3), ("linear", 2), ("wave", 4)]


def configuration(problem: PlanningProblem, placement: Placement) -> Configuration:
    return Configuration(problem, placement, OptionSets(problem))


def taken(problem: PlanningProblem, placement: Placement) -> Iterator[tuple[int, Candidate]]:
    """Take all candidates, each with the bound that it was promised with."""
    return taken_from(partitions_of(configuration(problem, placement)))


def taken_from(partitions: Partitions) -> Iterator[tuple[int, Candidate]]:
    while True:
        bound = partitions.bound
        candidate = partitions.take()
        if candidate is None:
            assert partitions.bound == NEVER
            return
        yield bound, candidate


@st.composite
def recomputations(draw: st.DrawFn, activation: int, needed: int) -> tuple[Recomputation, ...]:
    """Up to two kinds of recomputation of a layer; they may save nothing, or spare what W frees."""
    names = draw(st.sampled_from([(), ("full",), ("selective",), ("full", "selective")]))
    return tuple(
        Recomputation(
            name,
            draw(st.integers(0, 9)),
            draw(st.integers(0, activation)),
            draw(st.one_of(st.none(), st.integers(0, needed))),
            draw(st.one_of(st.none(), st.integers(0, 20))),
        )
        for name in names
    )


@st.composite
def layers(draw: st.DrawFn, name: str) -> Layer:
    ticks = st.one_of(st.integers(1, 9), st.integers(0, 9))
    activation = draw(st.integers(0, 20))
    needed = draw(st.integers(0, activation))
    return Layer(
        name,
        *(draw(ticks) for _ in range(3)),
        activation=activation,
        weight_activation=needed,
        recompute=draw(recomputations(activation, needed)),
        output=draw(st.integers(1, 6)),
        parameters=draw(st.integers(0, 5)),
        fused=draw(st.one_of(st.none(), st.integers(1, 20))),
    )


@st.composite
def communication(draw: st.DrawFn, devices: int) -> Any:
    row = st.lists(st.integers(0, 5), min_size=devices, max_size=devices)
    rows = draw(st.lists(row, min_size=devices, max_size=devices))
    matrix = tuple(tuple(ticks * (i != j) for j, ticks in enumerate(row)) for i, row in enumerate(rows))
    speed = st.builds(Fraction, st.integers(1, 6), st.just(2))
    network = Network(Fraction(1, 3), draw(speed), draw(st.sampled_from((None, 2))), Fraction(0), draw(speed))
    return draw(st.sampled_from((0, 3, matrix, network)))


@st.composite
def exchanges(draw: st.DrawFn) -> Gradients:
    some = st.builds(Fraction, st.integers(0, 7), st.just(3))
    numbers = (draw(some) for _ in range(4))
    return Gradients(draw(st.integers(1, 3)), draw(st.integers(1, 4).map(Fraction)), *numbers)


SHARED = [Sharding(Fraction(4, 3), Fraction(1, 3), resident) for resident in (1, 2, 3)]


@st.composite
def cases(
    draw: st.DrawFn,
    most_layers: int = 8,
    kinds: Sequence[tuple[str, int]] = KINDS,
    *,
    may_be_empty: bool = False,
) -> tuple[PlanningProblem, Placement]:
    """Draw a problem and a placement of these kinds; memory is often scarce, and layers are often equal.

    With `may_be_empty`, half of the problems allow empty stages.
    """
    placement = draw(
        st.sampled_from([Placement(name, p, c) for name, c in kinds for p in (1, 2, 3) if p * c <= 8])
    )
    alike = [draw(layers(f"kind {k}")) for k in range(draw(st.integers(1, 3)))]
    empty = may_be_empty and draw(st.booleans())
    count = draw(
        st.integers(2, 5) if empty else st.integers(placement.stages, max(most_layers, placement.stages))
    )
    model = Model(tuple(draw(st.sampled_from(alike)) for _ in range(count)))
    one = st.integers(1, 6 * max(1, sum(layer.activation for layer in model.layers) // placement.devices))
    memory = draw(st.one_of(st.none(), one, st.tuples(*(one for _ in range(placement.devices)))))
    static = draw(st.sampled_from((Fraction(0), Fraction(3, 2))))
    comm = draw(communication(placement.devices))
    reserve, gradients = draw(st.integers(0, 3)), draw(st.one_of(st.none(), exchanges()))
    shared = draw(st.sampled_from([NOT_SHARED, NOT_SHARED, *SHARED]))
    cluster = Cluster((placement.devices,), memory, reserve, static, comm, gradients, sharding=shared)
    recompute = draw(st.sampled_from([(), ("full",), ("selective", "full")]))
    objective = draw(st.sampled_from(Objective))
    space = SearchSpace((placement.name,), recompute=recompute, objective=objective, empty=empty)
    return PlanningProblem(model, cluster, Batch(draw(st.integers(1, 4))), space), placement


JOINED_KINDS = [("loop", 2), ("loop", 3), ("wave", 4)]


@st.composite
def alike_cases(draw: st.DrawFn) -> tuple[PlanningProblem, Placement]:
    """Draw a problem whose layers cost the same but for the first one, the last one and maybe the last but one.

    The placement is one whose later stages can be joined.
    """
    problem, placement = draw(cases(kinds=JOINED_KINDS))
    count = len(problem.model.layers)
    first, usual, odd, last = (draw(layers(name)) for name in ("first", "usual", "odd", "last"))
    usual = replace(usual, forward=1 + usual.forward, backward=1 + usual.backward)
    drawn = [
        replace(first, weight=1 + first.weight),
        *(replace(usual, name=f"{k}") for k in range(count - 2)),
        last,
    ]
    if placement.stages_per_device > 2 and draw(st.booleans()):
        drawn[-2] = odd
    return replace(problem, model=Model(tuple(drawn[:count]))), placement
