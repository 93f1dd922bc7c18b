"""Alternatives to a plan: every schedule family at equal memory, each with its own best partition.

Each family also has a plan with the uniform split. So a table of all these plans tells how much of a
difference between families comes from the partition and how much from the schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..core.allowance import Allowance
from ..core.progress import Progress
from .adopted import adopted
from .plan import Plan
from .plan_folder import PlanFolder, kept_plan
from .plan_table import Row, plan_row
from .planner import plan as find_plan
from .problem import PlanningProblem
from .schedule_families import Family, families_of
from .uniform_split import uniform_plan


class Split(StrEnum):
    """How the layers are cut into stages."""

    UNIFORM = "uniform"  #: equally many blocks on each stage
    BEST = "best"  #: the best partition and recomputation that were found, the uniform one included


@dataclass(frozen=True, slots=True)
class Question:
    """One row of the table of alternatives: a family and how its layers are cut, without the plan."""

    family: Family
    split: Split

    @property
    def name(self) -> str:
        """The name of the row, e.g. ``1f1b linear uniform``."""
        return f"{self.family.method} {self.family.placement} {self.split}"

    def answer(self, allowance: Allowance, progress: Progress) -> Plan:
        """Return the plan of this row, from `uniform_plan` or `tightpipe.plan`; raise what these raise."""
        if self.split is Split.UNIFORM:
            return uniform_plan(self.family, allowance)
        return find_plan(self.family.problem, progress=progress, **allowance.options)


Alternative = tuple[Question, Plan]


def questions(problem: PlanningProblem) -> list[Question]:
    """Return the rows of the table of alternatives to a problem's plan."""
    return [Question(family, split) for family in families_of(problem) for split in Split]


def alternatives(
    asked: Sequence[Question],
    allowance: Allowance,
    folder: PlanFolder | None,
    begin: Callable[[str], Progress],
) -> Iterator[Alternative]:
    """Yield each row of the table with its plan, as soon as the plan is found.

    A family's plan with the uniform split also counts as its best plan if no cheaper one is found.

    Parameters
    ----------
    asked
        The rows; for each family, the one with the uniform split comes first.
    allowance
        Time limit, threads and seed of the search for each row.
    folder
        Where the plans are kept; a plan that is already there is not searched for again. None to keep none.
    begin
        Function that is called with the name of each row. It returns a function, which `tightpipe.plan` calls
        with each new cost or bound if it searches for the row.

    Raises
    ------
    InputError
        If a plan in the folder cannot be read or written.
    KeyboardInterrupt
        If a signal ends a search; its row is not yielded.
    """
    uniform: dict[Family, Plan] = {}
    for question in asked:
        family, watch = question.family, begin(question.name)
        other = uniform.get(family)

        def find(question: Question = question, watch: Progress = watch, other: Plan | None = other) -> Plan:
            return adopted(question.answer(allowance, watch), other)

        found = kept_plan(folder, question.name.replace(" ", "-"), family.problem, find)
        yield question, found
        uniform.setdefault(family, found)


def alternatives_rows(found: Sequence[Alternative]) -> list[Row]:
    """Return the rows of the table of alternatives as plain data.

    The column `of_the_fastest` has the throughput of a row's plan as a share of the highest throughput.
    """
    fastest = min((plan.cost for _, plan in found if plan.cost is not None), default=None)
    rows = []
    for question, plan in found:
        share = None if plan.cost is None or fastest is None else fastest / plan.cost
        family = {"family": question.family.method, "split": str(question.split)}
        placement = {"placement": question.family.placement}  # shown also in a row without a plan
        rows.append({**family, **plan_row(question.name, plan), **placement, "of_the_fastest": share})
    return rows
