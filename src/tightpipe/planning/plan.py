"""A plan: the result of `tightpipe.plan`."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from ..core.instance import Instance
from ..core.metrics import cost
from ..core.params.solve_params import DEFAULTS, SolveParams
from ..core.result import LogEntry, Proof, Status
from ..core.schedule import Schedule
from ..drawing.plot_schedule import html_of
from .candidate import Candidate
from .device_memory import DeviceMemory, device_memories
from .plan_text import plan_text
from .problem import PlanningProblem


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """A partition, a placement, recomputed layers and a schedule, with a bound over the whole search space.

    Parameters
    ----------
    problem
        The planning problem.
    status
        `optimal` if the cost equals the bound; `feasible` if the plan may not be the best; `infeasible` if it
        is proven that nothing fits the memory; `unknown` if no schedule was found.
    candidate, schedule
        The best candidate and its schedule; None where none was found. The schedule has passed the validator.
    method
        Name of the method that found the schedule; empty if there is no schedule.
    bound
        A lower bound, in ticks, of the cost of every plan in the search space; None where nothing fits, or
        nothing is proven.
    proof
        What the bound rests on; None where there is no bound.
    seconds
        Wall time of the search.
    considered
        Number of candidates for which a schedule was searched for.
    log
        One entry for each change of the best cost or the bound, with both as they then were.
    reason
        Why there is no plan, or why the search ended early; empty otherwise.
    params
        The numbers that tuned the search.
    """

    problem: PlanningProblem
    status: Status
    candidate: Candidate | None
    schedule: Schedule | None
    method: str
    bound: int | None
    proof: Proof | None
    seconds: float
    considered: int = 0
    log: tuple[LogEntry, ...] = ()
    reason: str = ""
    params: SolveParams = DEFAULTS

    def __str__(self) -> str:
        return plan_text(self)

    def __repr__(self) -> str:
        where = ""
        if self.candidate is not None:
            placement = self.candidate.placement
            where = f" {placement.name} {placement.devices}x{placement.stages_per_device}"
        return f"<Plan{where}: {self.status}, cost {self.cost}, bound {self.bound}>"

    def _repr_html_(self) -> str:
        """Return the HTML for a notebook: the text of the plan, and below it the Gantt chart."""
        text = f"<pre>{escape(str(self))}</pre>"
        if self.schedule is None:
            return text
        return text + html_of(self.schedule, label=self.method, bound=self.bound)

    @property
    def instance(self) -> Instance | None:
        """The scheduling problem of the plan's stages; None without a schedule."""
        return None if self.schedule is None else self.schedule.instance

    @property
    def cost(self) -> int | None:
        """Ticks of one training step; None without a schedule."""
        return None if self.schedule is None else cost(self.schedule)

    @property
    def step_time(self) -> int | float | None:
        """Time of one training step in the unit of `PlanningProblem.tick`; None without a schedule."""
        return self.problem.tick.time_of(self.cost)

    @property
    def gap(self) -> float | None:
        """(cost - bound) / cost, the largest share another plan can save; None without schedule or bound."""
        found = self.cost
        return None if found is None or self.bound is None else (found - self.bound) / found

    @property
    def memory(self) -> tuple[DeviceMemory, ...] | None:
        """What the memory of each device is used for, in bytes; None without a schedule."""
        if self.schedule is None or self.candidate is None:
            return None
        return device_memories(self.problem, self.candidate, self.schedule)

    @property
    def peak_memory(self) -> list[int] | None:
        """The peak of each device in bytes, static state and reserve included; None without a schedule."""
        return None if self.memory is None else [device.peak for device in self.memory]

    @property
    def microbatches_per_second(self) -> float | None:
        """Microbatches per second of all pipelines together; None without a schedule."""
        return None if self.cost is None else self.problem.microbatches_per_second(self.cost)

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens per second of all data-parallel pipelines; None without a schedule or `Batch.tokens`."""
        rate, tokens = self.microbatches_per_second, self.problem.batch.tokens
        return None if rate is None or tokens is None else rate * tokens


def no_plan(
    problem: PlanningProblem,
    reason: str,
    *,
    status: Status = Status.INFEASIBLE,
    seconds: float = 0.0,
    considered: int = 0,
) -> Plan:
    """Return a `Plan` without candidate and schedule, whose `reason` says in one line why there is none.

    The other arguments are the fields of `Plan` with the same names.
    """
    return Plan(problem, status, None, None, "", None, None, seconds, considered, (), reason)
