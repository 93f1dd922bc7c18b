"""Layouts for Megatron-LM are written only for numbers of microbatches that its schedules accept."""

from __future__ import annotations

import shlex
from itertools import product

import pytest

from tightpipe import InputError, Placement
from tightpipe.export import SPLITS, ModelSplit, export_text, split_model

GROUP = "--microbatch-group-size-per-virtual-pipeline-stage"
GRID = list(product(range(1, 7), range(1, 4), range(1, 20)))


def megatron_accepts(p: int, chunks: int, n: int, group: int | None) -> bool:
    """The checks of Megatron-LM's arguments and interleaved schedule, as of August 2026, written down anew.

    `group` is the value of the argument; None if it is not given, where Megatron-LM takes p.
    """
    if chunks == 1:  # neither the schedule without pipeline nor plain 1F1B looks at n
        return True
    if p == 1:
        return False
    size = p if group is None else group
    if size < p or size > n:
        return False
    last = n % size
    return last == 0 or last >= p


def split(p: int, chunks: int, n: int | None) -> ModelSplit:
    placement = Placement("loop", p, chunks)
    layers = ["embedding", *["block"] * (placement.stages - 1), "head"]
    cuts = (0, *range(2, placement.stages + 1), len(layers))
    return split_model(layers, cuts, ((),) * placement.stages, placement.routes[0], microbatches=n)


def group_of(text: str) -> int | None:
    words = shlex.split(text)
    return int(words[words.index(GROUP) + 1]) if GROUP in words else None


def test_what_is_written_is_accepted_and_what_is_refused_has_no_group_that_is() -> None:
    written = 0
    for p, chunks, n in GRID:
        asked = split(p, chunks, n)
        try:
            text = export_text(asked, "megatron-layout")
        except InputError:
            groups = [None, *range(1, n + 1)]
            assert not any(megatron_accepts(p, chunks, n, group) for group in groups), (p, chunks, n)
        else:
            assert megatron_accepts(p, chunks, n, group_of(text)), (p, chunks, n)
            written += 1
    assert written > len(GRID) / 2


def test_the_group_is_the_smallest_that_is_accepted_and_left_to_megatron_where_it_is_p() -> None:
    for p, chunks, n in GRID:
        if chunks > 1 and 1 < p <= n:
            accepted = [size for size in range(p, n + 1) if megatron_accepts(p, chunks, n, size)]
            expected = None if accepted[0] == p else accepted[0]
            assert group_of(export_text(split(p, chunks, n), "megatron-layout")) == expected, (p, chunks, n)


@pytest.mark.parametrize(
    ("p", "n", "group"), [(4, 8, None), (4, 6, 6), (4, 10, 5), (4, 11, 6), (6, 7, 7), (2, 7, 4), (2, 4, None)]
)
def test_a_group_is_written_where_groups_of_p_leave_fewer_than_p(p: int, n: int, group: int | None) -> None:
    assert group_of(export_text(split(p, 2, n), "megatron-layout")) == group


@pytest.mark.parametrize("layout_only", [False, True])
@pytest.mark.parametrize(
    ("p", "chunks", "n", "message"),
    [
        (
            6,
            2,
            3,
            r"microbatches = 3: Megatron-LM needs at least as many as devices, 6, .* or with chunks = 1",
        ),
        (2, 3, 1, r"microbatches = 1: Megatron-LM needs at least as many as devices, 2"),
        (1, 2, 8, r"stages = 2: Megatron-LM has one stage on a single device; plan with chunks = 1"),
        (2, 2, None, r"microbatches = None: must be known: Megatron-LM runs several stages per device"),
    ],
)
def test_a_refusal_names_the_remedy(
    p: int, chunks: int, n: int | None, message: str, layout_only: bool
) -> None:
    with pytest.raises(InputError, match=message):
        export_text(split(p, chunks, n), "megatron-layout", layout_only=layout_only)


def test_torchtitan_needs_the_number_that_a_layout_of_megatron_does_not_say() -> None:
    layout = SPLITS["megatron-layout"].read(export_text(split(2, 1, 4), "megatron-layout"))
    with pytest.raises(InputError, match="microbatches = None: must be known: PyTorch refuses"):
        export_text(layout, "torchtitan")
