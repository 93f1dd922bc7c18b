"""A plan: what `tightpipe.plan` answers."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from ..core.instance import Instance
from ..core.metrics import cost
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
        What was asked.
    status
        `optimal` if the cost equals the bound; `infeasible` if it is proven that nothing in the search space
        fits the memory; `unknown` if time ended before any schedule was found.
    candidate, schedule
        The best plan, or None where none was found. The schedule has passed the validator.
    method
        The method that found the schedule.
    bound
        No plan in the search space has a step that costs fewer ticks; None where nothing fits.
    proof
        What the bound rests on; None where there is no bound.
    seconds
        Wall time of the search.
    considered
        Number of candidates for which a schedule was searched for.
    log
        Costs and bounds over time.
    reason
        Why there is no plan, or why the search ended early; empty otherwise.
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

    def __str__(self) -> str:
        return plan_text(self)

    def __repr__(self) -> str:
        where = ""
        if self.candidate is not None:
            placement = self.candidate.placement
            where = f" {placement.name} {placement.devices}x{placement.stages_per_device}"
        return f"<Plan{where}: {self.status}, cost {self.cost}, bound {self.bound}>"

    def _repr_html_(self) -> str:
        """Show the text above the Gantt chart in a notebook."""
        text = f"<pre>{escape(str(self))}</pre>"
        if self.schedule is None:
            return text
        return text + html_of(self.schedule, label=self.method, bound=self.bound)

    @property
    def instance(self) -> Instance | None:
        """The scheduling problem of the plan's stages; None without a plan."""
        return None if self.schedule is None else self.schedule.instance

    @property
    def cost(self) -> int | None:
        """Ticks of one step; None without a plan."""
        return None if self.schedule is None else cost(self.schedule)

    @property
    def gap(self) -> float | None:
        """(cost - bound) / cost, the largest share that another plan could save; None without a plan."""
        found = self.cost
        return None if found is None or self.bound is None else (found - self.bound) / found

    @property
    def memory(self) -> tuple[DeviceMemory, ...] | None:
        """The memory of each device by what takes it; None without a plan."""
        if self.schedule is None or self.candidate is None:
            return None
        return device_memories(self.problem, self.candidate, self.schedule)

    @property
    def peak_memory(self) -> list[int] | None:
        """The largest use of each device in bytes, static state and reserve included; None without a plan."""
        return None if self.memory is None else [device.peak for device in self.memory]

    @property
    def microbatches_per_second(self) -> float | None:
        """Microbatches of all data-parallel pipelines per second, one tick being a microsecond; or None."""
        batch, ticks = self.problem.batch, self.cost
        return None if ticks is None else batch.microbatches * batch.data_parallel * 1e6 / ticks

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens of all data-parallel pipelines per second; None if a microbatch's tokens are not known."""
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
    """Return the answer that there is no plan, with the reason in one line for people."""
    return Plan(problem, status, None, None, "", None, None, seconds, considered, (), reason)
