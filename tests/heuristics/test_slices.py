"""Seq1F1B and its interleaved and zero-bubble forms: valid for all sizes, with the memory of the formula."""

from __future__ import annotations

from itertools import product

import pytest
from helpers.clock import counted_time

from tightpipe import Instance, Memory, MicrobatchSlice, NoScheduleError, solve, validate
from tightpipe.heuristics import HEURISTICS
from tightpipe.model.metrics import cost, peak_memory
from tightpipe.registry.starts import schedule_of


def cut(
    placement: str, p: int, n: int, k: int, limit: int | None = None, chunks: int | None = None
) -> Instance:
    return Instance.uniform(
        devices=p,
        microbatches=n,
        forward=4,
        backward=4,
        weight=4,
        placement=placement,
        chunks=chunks,
        memory=Memory(2, -1, -1, limit),
        slices=[MicrobatchSlice()] * k,
    )


@pytest.mark.parametrize(("p", "k"), list(product(range(1, 6), range(1, 6))))
def test_seq_1f1b_holds_as_many_slices_as_its_warm_up_and_one(p: int, k: int) -> None:
    for n in (1, 2, 3, 5, 8):
        instance = cut("linear", p, n, k)
        schedule = schedule_of(instance, HEURISTICS["seq-1f1b"])
        assert validate(instance, schedule) == []
        assert (peak_memory(schedule) // 2).tolist() == [min(p - r + k - 1, n * k) for r in range(p)]
        validate(instance, schedule_of(instance, HEURISTICS["seq-zb"]))


@pytest.mark.parametrize(("p", "k", "chunks"), list(product(range(1, 5), range(1, 5), (2, 3))))
def test_interleaved_slices_never_wait_for_each_other_in_a_circle(p: int, k: int, chunks: int) -> None:
    for n in (1, 2, 3, 5, 8):
        instance = cut("loop", p, n, k, chunks=chunks)
        assert validate(instance, schedule_of(instance, HEURISTICS["seq-interleaved"])) == []


def test_seq_1f1b_of_whole_microbatches_is_1f1b() -> None:
    for n in (1, 3, 9):
        whole = cut("linear", 4, n, 1)
        orders = [HEURISTICS[name].order(whole) for name in ("1f1b", "seq-1f1b")]
        assert orders[0] == orders[1]


def test_seq_1f1b_has_the_bubble_of_its_paper() -> None:
    """With k equal slices, p - 1 slices run before and after the steady state, in place of microbatches."""
    for p, n, k in ((4, 8, 1), (4, 8, 2), (4, 8, 4), (8, 8, 4)):
        instance = cut("linear", p, n, k)
        makespan = schedule_of(instance, HEURISTICS["seq-1f1b"]).end.max()
        assert makespan == (n * k + p - 1) * 12


def test_other_families_run_the_slices_of_a_microbatch_one_after_another() -> None:
    instance = cut("linear", 3, 4, 2)
    order = schedule_of(instance, HEURISTICS["1f1b"]).order
    assert order.text(2).splitlines()[2] == " ".join(
        f"F2.{m}.0 F2.{m}.1 BW2.{m}.1 BW2.{m}.0" for m in range(4)
    )


def test_seq_1f1b_says_which_limit_is_enough() -> None:
    with pytest.raises(NoScheduleError, match="seq-1f1b needs a memory limit of at least 10, and has 9"):
        HEURISTICS["seq-1f1b"].order(cut("linear", 4, 4, 2, limit=9))


def test_seq_1f1b_takes_the_time_of_1f1b_in_slices_and_less_memory() -> None:
    """A search in that memory starts from it, because 1F1B does not fit."""
    instance = cut("linear", 4, 6, 4)
    one, seq = (schedule_of(instance, HEURISTICS[name]) for name in ("1f1b", "seq-1f1b"))
    assert cost(one) == cost(seq)
    assert [max(peak_memory(schedule)) for schedule in (one, seq)] == [2 * 4 * 4, 2 * (4 + 4 - 1)]
    tight = cut("linear", 4, 6, 4, limit=14)
    with pytest.raises(NoScheduleError):
        schedule_of(tight, HEURISTICS["1f1b"])
    with counted_time(per_look=0):  # so that all heuristics have the time to begin
        assert solve(tight, "improve", time_limit=0).cost <= cost(seq)
