"""What pairs save: matchings against all subsets, also where many microbatches are alike."""

from __future__ import annotations

import json
from itertools import combinations, permutations
from pathlib import Path

import pytest
from helpers.cases import uniform
from hypothesis import given, settings
from hypothesis import strategies as st

from tightpipe import InputError, load_instance
from tightpipe.model.costs import largest_savings
from tightpipe.model.graph import graph_of
from tightpipe.model.instance_file import instance_to_dict, save_instance

Rows = list[list[int]]


def most_saved(rows: Rows, k: int) -> int:
    """Try all sets of k pairs."""
    columns = range(len(rows[0]))
    return max(
        sum(rows[r][c] for r, c in zip(chosen, others, strict=True))
        for chosen in combinations(range(len(rows)), k)
        for others in permutations(columns, k)
    )


squares = st.integers(1, 4).flatmap(
    lambda n: st.lists(st.lists(st.integers(0, 9), min_size=n, max_size=n), min_size=n, max_size=n)
)


@settings(deadline=None)
@given(squares)
def test_each_number_is_what_one_more_pair_can_save(rows: Rows) -> None:
    found = largest_savings(tuple(map(tuple, rows)))
    sums = [sum(found[:k]) for k in range(len(rows) + 1)]
    assert sums == [most_saved(rows, k) for k in range(len(rows) + 1)]
    assert sorted(found, reverse=True) == list(found)


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 9), min_size=2, max_size=2), min_size=2, max_size=2))
def test_pairs_of_alike_operations_save_as_often_as_there_are_microbatches(rows: Rows) -> None:
    twice = [[rows[r][c] for c in (0, 0, 1, 1)] for r in (0, 0, 1, 1)]
    found = largest_savings(tuple(map(tuple, rows)))
    assert [*largest_savings(tuple(map(tuple, twice)))] == [v for v in found for _ in range(2)]


def test_the_work_of_a_device_is_the_least_that_any_pairs_leave() -> None:
    pairs = [[18, 12], [13, 20]]
    instance = uniform(1, 2, (6, 5, 4), placement="loop", chunks=2, pairs=pairs)
    saved = [[15 - ticks for ticks in row] for row in pairs]
    best = max(saved[0][a] + saved[1][b] for a, b in permutations(range(2)))
    assert instance.work(0) == 2 * (2 * 15 - max(best, 0))


def test_entries_of_stages_that_no_device_has_both_do_not_matter(tmp_path: Path) -> None:
    """On V stages 0 and 3 share device 0, stages 1 and 2 device 1; a stage without W has no BW."""
    pairs = [[20, 0, 0, 23], [0, 31, 0, 0], [0, 41, 0, 0], [50, 0, 0, 53]]
    instance = uniform(2, 2, (6, 5, [4, 4, 0, 4]), pairs=pairs)  # type: ignore[arg-type]
    assert instance_to_dict(instance)["pairs"] == pairs
    graph = graph_of(instance)
    assert [ticks for (first, _), ticks in graph.pairs.items() if graph.nodes[first].stage == 2] == [41]
    save_instance(instance, tmp_path / "instance.json")
    assert load_instance(tmp_path / "instance.json") == instance


@pytest.mark.parametrize(
    ("joint", "least"),
    [
        ({}, (6, 5, 4)),
        ({"fused": 4}, (6, 4, 0)),
        ({"overlapped": 3}, (3, 3, 0)),
        ({"overlapped": 8}, (6, 5, 3)),
    ],
)
def test_a_path_counts_an_operation_alone_fused_or_in_a_pair(
    joint: dict[str, int], least: tuple[int, ...]
) -> None:
    assert graph_of(uniform(1, 2, (6, 5, 4), placement="linear", **joint)).least == least  # type: ignore[arg-type]


@pytest.mark.parametrize(("occupancy", "links"), [(4, 0), (5, 2)])
def test_pairs_that_are_shorter_than_their_messages_make_links_busy(occupancy: int, links: int) -> None:
    instance = uniform(*(2, 2, (6, 5, 4)), placement="linear", overlapped=4, link_occupancy=occupancy)
    assert len(graph_of(instance).links) == links


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"pairs": [[9, 9], [9]]}, "pairs[1] = [9]: has 1 entries, must have one per stage: 2"),
        ({"pairs": [[9, 9]]}, "pairs = [[9, 9]]: has 1 rows, must have a row for the F of each stage: 2"),
        ({"pairs": [[9, 9], [9, 0]]}, "pairs[1][1] = 0: must be at least 1"),
    ],
)
def test_a_matrix_of_another_form_is_refused_in_a_line(
    entries: dict[str, object], said: str, tmp_path: Path
) -> None:
    times = {"forward": 6, "backward": 5, "weight": 4}
    placed = {"devices": 2, "microbatches": 2, "placement": "linear"}
    file = tmp_path / "wrong.json"
    file.write_text(json.dumps(placed | times | entries))
    with pytest.raises(InputError) as error:
        load_instance(file)
    assert str(error.value) == f"{file}: {said}"
