"""Schedules that the tests of the drawings share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from helpers.golden import GOLDEN, golden_instance
from matplotlib.figure import Figure

from tightpipe import Instance, Memory, OpKind, Order, Schedule, retime, simulate
from tightpipe.drawing import style


@pytest.fixture(scope="session")
def small_v() -> Schedule:
    """Two devices, two microbatches, in an order written by hand."""
    instance = Instance.uniform(
        devices=2, microbatches=2, forward=4, backward=6, weight=3, comm=1, memory=Memory(2, -1, -1, 8)
    )
    order = Order.parse(
        "F0.0 F0.1 F3.0 B3.0 F3.1 B3.1 W3.0 B0.0 W3.1 B0.1 W0.0 W0.1\n"
        "F1.0 F2.0 F1.1 F2.1 B2.0 B1.0 B2.1 W2.0 B1.1 W2.1 W1.0 W1.1"
    )
    return simulate(instance, order)


@pytest.fixture(scope="session")
def fused() -> Schedule:
    """1F1B on two devices with the fused backward."""
    instance = Instance.uniform(
        devices=2, microbatches=3, forward=3, backward=3, weight=2, placement="linear", objective="makespan"
    )
    order = Order.parse("F0.0 F0.1 BW0.0 F0.2 BW0.1 BW0.2\nF1.0 BW1.0 F1.1 BW1.1 F1.2 BW1.2")
    return simulate(instance, order)


@pytest.fixture(scope="session")
def paired() -> Schedule:
    """Two directions on two devices, where an F runs together with a B of the other direction."""
    instance = Instance.uniform(
        devices=2,
        microbatches=4,
        forward=3,
        backward=3,
        weight=3,
        placement="bidirectional",
        memory=Memory(2, -1, -1, 8),
    )
    order = Order.parse(
        "F0.0 F1.2 F0.1+B1.2 F1.3+B0.0 B1.3 B0.1 W1.2 W0.0 W1.3 W0.1\n"
        "F0.2 F1.0 F0.3+B1.0 F1.1+B0.2 B1.1 B0.3 W1.0 W0.2 W1.1 W0.3"
    )
    return simulate(instance, order)


@pytest.fixture(scope="session")
def greedy_v() -> Schedule:
    """The greedy V-schedule of 4 devices and 8 microbatches."""
    row = next(row for row in GOLDEN if (row["p"], row["n"]) == (4, 8) and "order" in row)
    return retime(golden_instance(row), Order.parse("\n".join(row["order"])))


@pytest.fixture(scope="session")
def large_v() -> Schedule:
    """32 devices, 256 microbatches, 49,152 operations; a microbatch starts every 2(f + b + w)."""
    f, b, w = 9447, 9644, 7193
    memory = Memory(454656, -258048, -196608, None)
    instance = Instance.uniform(
        devices=32, microbatches=256, forward=f, backward=b, weight=w, comm=887, memory=memory
    )
    lists: list[list[tuple[int, int, int, int]]] = [[] for _ in range(32)]
    for m in range(256):
        begin = m * 2 * (f + b + w)
        for s in range(64):
            device = lists[instance.device(s, m)]
            backward = begin + 64 * f + (63 - s) * b
            device += [(begin + s * f, OpKind.F, s, m)]
            device += [(backward, OpKind.B, s, m), (backward + b, OpKind.W, s, m)]
    return simulate(instance, Order.from_lists([[op[1:] for op in sorted(ops)] for ops in lists]))


@pytest.fixture
def figure_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Figure]:
    """Call a function that draws, with a path, and return the figure instead of writing it."""

    def capture(draw: Callable[..., None], *args: object, **options: object) -> Figure:
        drawn: list[Figure] = []
        monkeypatch.setattr(style, "write_figure", lambda figure, path, dpi: drawn.append(figure))
        draw(*args, path="figure.svg", **options)
        return drawn[0]

    return capture
