"""What people see of a plan: some lines, a table of its devices, a page in a notebook."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from helpers.handmade_plans import BLOCK, CLUSTER, EMBEDDING, HEAD, LAYERS, no_plan, plan, problem

from tightpipe import Placement
from tightpipe.planning import Batch, Layer
from tightpipe.planning.result import layer_names


def test_the_lines_above_the_table() -> None:
    made = plan()
    head, _ = str(made).split("\n\n")
    lines = dict(line.split(maxsplit=1) for line in head.splitlines())
    assert 8 <= len(lines) <= 14
    assert made.microbatches_per_second is not None
    assert made.tokens_per_second is not None
    assert lines["placement"] == "v, 2 device(s), 2 chunk(s)"
    assert lines["recomputed"] == "3 of 10 layers"
    assert lines["cost"] == f"{made.cost} us per step"
    assert lines["bound"].startswith(f"{made.bound} us: ")
    assert lines["gap"] == f"{made.gap:.6f}"
    rates = f"{made.microbatches_per_second:.3f} microbatches/s, {made.tokens_per_second:.0f} tokens/s"
    assert lines["throughput"] == rates
    assert "reason" not in lines


def test_a_device_is_a_row() -> None:
    *_, first, second = str(plan()).splitlines()
    assert "0: embedding, block 1-2; 3: block 7-8, head" in first
    assert "1: block 3-4; 2: block 5-6" in second
    recomputed, forward, backward, weight = second.split("block 5-6")[1].split()[:4]
    assert recomputed == "1"
    assert (int(forward), int(backward), int(weight)) == (40, 44 + BLOCK.forward, 36)


def test_the_memory_of_a_row_adds_up() -> None:
    made = plan()
    assert made.peak_memory is not None
    for row, peak in zip(str(made).splitlines()[-2:], made.peak_memory, strict=True):
        *parts, shown, limit = (float(text) for text in row.split()[-6:])
        assert shown == pytest.approx(sum(parts), abs=0.021)
        assert shown == pytest.approx(peak / 1000, abs=0.006)
        assert limit == 4


@pytest.mark.parametrize(("scale", "unit"), [(1, "kB"), (10**6, "GB"), (1000, "MB")])
def test_the_unit_fits_the_largest_memory(scale: int, unit: str) -> None:
    cluster = replace(
        CLUSTER, memory=4000 * scale, reserve=70 * scale, bytes_per_parameter=Fraction(3 * scale)
    )
    shown = str(plan(problem(cluster=cluster)))
    (line,) = (line for line in shown.splitlines() if line.startswith("peak_memory"))
    assert f" of 4.00 {unit} (device " in line


def test_without_a_limit_the_table_has_a_dash() -> None:
    shown = str(plan(problem(cluster=replace(CLUSTER, memory=None), batch=Batch(4))))
    assert all(row.endswith(" -") for row in shown.splitlines()[-2:])
    assert "tokens/s" not in shown


def test_where_nothing_fits_there_are_only_lines() -> None:
    shown = str(no_plan())
    assert "\n\n" not in shown
    assert "infeasible" in shown.splitlines()[0]
    assert shown.splitlines()[-1].endswith("device 0 lacks 12 bytes")


def test_layers_have_their_indices_in_the_model_where_a_name_is_shared() -> None:
    assert layer_names(LAYERS, 0, 3) == "embedding, block 1-2"
    assert layer_names(LAYERS, 8, 10) == "block 8, head"
    mixed = (EMBEDDING, BLOCK, Layer("moe", 1, 1, 1), BLOCK, HEAD)
    assert layer_names(mixed, 0, 5) == "embedding, block 1, moe, block 3, head"


def test_a_plan_names_itself_in_one_line() -> None:
    made = plan()
    assert repr(made) == f"<Plan v 2x2: {made.status}, cost {made.cost}, bound {made.bound}>"
    assert repr(no_plan()) == "<Plan: infeasible, cost None, bound None>"


def test_a_notebook_shows_the_text_and_the_chart() -> None:
    odd = (replace(EMBEDDING, name="<b>embedding"), *LAYERS[1:])
    html = plan(problem(odd), Placement("loop", 2))._repr_html_()
    assert "&lt;b&gt;embedding" in html
    assert "<b>embedding" not in html
    assert "<svg" in html
    assert "<svg" not in no_plan()._repr_html_()
