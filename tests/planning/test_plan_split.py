"""The cut of a plan for frameworks: its own layers, and of equal layers the first ones."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.handmade_plans import BLOCK, EMBEDDING, HEAD, alike, no_plan, plan, problem

from tightpipe import InputError, NoScheduleError, Placement
from tightpipe.export import ModelSplit
from tightpipe.planning import split_of
from tightpipe.planning.candidate import Candidate, instance_of


def test_the_parts_of_each_stage() -> None:
    split = split_of(plan())
    assert split == ModelSplit((0, 1, 1, 0), ("Ett", "tt", "tt", "ttL"), alike(((1, 2), (), (0,), ())), 4)
    assert split.cuts == (0, 3, 5, 7, 10)


def test_of_equal_layers_the_first_ones_are_recomputed_and_the_instance_stays() -> None:
    other = replace(BLOCK, forward=12)
    asked = problem((EMBEDDING, BLOCK, other, BLOCK, BLOCK, HEAD))
    placement = Placement("linear", 2)
    split = split_of(plan(asked, placement, (0, 4, 6), ((2, 3), (4,))))
    assert split.recomputed == alike(((1, 2), (0,)))
    first = Candidate(placement, (0, 4, 6), alike(((1, 2), (4,))))
    assert instance_of(asked, first) == instance_of(asked, replace(first, recomputed=alike(((2, 3), (4,)))))


def test_the_kind_of_a_layer_says_what_its_name_does_not() -> None:
    named = replace(BLOCK, name="body")
    with pytest.raises(InputError, match="name of layer 1 = 'body': does not say what the layer is"):
        split_of(plan(problem((EMBEDDING, *[named] * 8, HEAD))))
    told = replace(named, kind="block")
    assert split_of(plan(problem((EMBEDDING, *[told] * 8, HEAD)))) == split_of(plan())


def test_a_stage_on_two_devices_is_refused() -> None:
    made = plan(placement=Placement("bidirectional", 2), cuts=(0, 5, 10), recomputed=((), ()))
    with pytest.raises(InputError, match=r"'bidirectional': frameworks .* keep a stage on one device"):
        split_of(made)


def test_where_there_is_no_plan_there_is_no_cut() -> None:
    with pytest.raises(NoScheduleError, match="infeasible: device 0 lacks 12 bytes"):
        split_of(no_plan())
