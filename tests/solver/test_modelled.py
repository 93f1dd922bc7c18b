"""Which rules of an instance a solver may leave out, and how it says so."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.cases import uniform

from tightpipe import InputError, Instance
from tightpipe.solver.queues import Rule, is_modelled, refuse_unmodelled

PLAIN = uniform(2, 4, (3, 4, 2))
PAIRED = uniform(2, 4, (3, 4, 2), overlapped=6)
FUSED = uniform(2, 4, (3, 4, 2), fused=5)
LATE = uniform(2, 4, (3, 4, 2), fused=7)
FLUSHED = replace(PLAIN, iterations=2, flush=True)
FLUSHLESS = replace(PLAIN, iterations=2, flush=False)


@pytest.mark.parametrize(
    ("instance", "knows", "modelled"),
    [
        (PLAIN, (), True),
        (PAIRED, (Rule.FLUSHES,), False),
        (PAIRED, (Rule.PAIRS,), True),
        (FUSED, (Rule.PAIRS,), False),
        (FUSED, (Rule.FUSED,), True),
        (LATE, (), True),
        (FLUSHED, (Rule.PAIRS,), False),
        (FLUSHED, (Rule.FLUSHES, Rule.PAIRS), True),
        (FLUSHLESS, (), True),
    ],
)
def test_an_instance_is_modelled_if_the_solver_knows_all_of_its_rules(
    instance: Instance, knows: tuple[Rule, ...], modelled: bool
) -> None:
    assert is_modelled(instance, *knows) is modelled


@pytest.mark.parametrize(("instance", "key"), [(PAIRED, "overlapped"), (FLUSHED, "iterations")])
def test_a_refusal_names_the_solver_and_the_entry(instance: Instance, key: str) -> None:
    with pytest.raises(InputError, match="block does not") as error:
        refuse_unmodelled("block", instance)
    assert error.value.key == key


def test_what_is_modelled_is_not_refused() -> None:
    refuse_unmodelled("block", FLUSHLESS)
    refuse_unmodelled("block", FLUSHED, Rule.FLUSHES)
