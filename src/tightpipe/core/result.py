"""What is known about an instance: a Bound comes from a proof, and a Result from a method."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from html import escape
from typing import TYPE_CHECKING, Any

from . import metrics
from .errors import NoScheduleError
from .instance import Instance
from .params.solve_params import DEFAULTS, SolveParams
from .result_text import lines_of, summary
from .schedule import Schedule

if TYPE_CHECKING:
    import pandas as pd

    from ..certificates import Certificate


class Status(StrEnum):
    """How a method ended."""

    OPTIMAL = "optimal"  #: the method found a schedule whose cost equals a proven lower bound
    FEASIBLE = "feasible"  #: the method found a schedule
    INFEASIBLE = "infeasible"  #: the method proved that the instance has no schedule
    UNKNOWN = "unknown"  #: the method found no schedule and no proof that there is none


class Proof(StrEnum):
    """What a lower bound rests on: an argument of this project, or the answer of a trusted solver."""

    FORMULA = "formula"  #: a formula whose docstring gives the argument
    ENERGETIC = "energetic"  #: at a lower cost, a device would have more work between two times than fits
    SHAVING = "shaving"  #: constraint propagation refutes a lower cost, also under trial assumptions
    FLUID = "fluid"  #: linear inequalities that a lower cost implies have no solution; checked in integers
    PREFIXES = "prefixes"  #: dynamic programming finds no schedule of a few devices at a lower cost
    CP_SAT = "cp-sat"  #: CP-SAT searched everything, and its answer is trusted
    MILP = "milp"  #: dual bound of a mixed-integer solver, whose answer is trusted

    @property
    def trusted(self) -> bool:
        """Whether the bound rests on the answer of another solver, which nothing in this project checks."""
        return self in (Proof.CP_SAT, Proof.MILP)


@dataclass(frozen=True, slots=True)
class Bound:
    """A proven lower bound of the cost.

    Parameters
    ----------
    value
        The bound in ticks: no schedule of the instance costs less.
    name
        Name of the bound.
    argument
        Why the bound holds for this instance, in one line for people.
    seconds
        Wall time of the computation.
    proof
        Kind of the argument.
    """

    value: int
    name: str
    argument: str
    seconds: float
    proof: Proof = Proof.FORMULA


@dataclass(frozen=True, slots=True)
class LogEntry:
    """State of a solve after `seconds` of wall time.

    `cost` is the cost of the incumbent, which is the best schedule so far, and `bound` the best lower bound
    so far, both in ticks; `proof` says what the bound rests on. Each of the three is None until it
    is known.
    """

    seconds: float
    cost: int | None
    bound: int | None
    proof: Proof | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Result:
    """A method's answer to an instance.

    Parameters
    ----------
    instance
        The problem.
    method
        Name of the method.
    status
        How the method ended.
    schedule
        A schedule that has passed the validator, or None where the method found none.
    bound
        A proven lower bound of the cost in ticks, or None where nothing is proven.
    seconds
        Wall time of the solve.
    log
        Incumbents and bounds over time, in the sequence in which they were found.
    reason
        Why there is no schedule, or why a method ended early: `interrupted` by Ctrl-C, `terminated` by
        SIGTERM, or a sentence; empty otherwise.
    proof
        What the bound rests on; None where nothing is proven, or where the caller gave the bound.
    params
        The numbers that tuned the searches.
    """

    instance: Instance
    method: str
    status: Status
    schedule: Schedule | None
    bound: int | None
    seconds: float
    log: tuple[LogEntry, ...] = ()
    reason: str = ""
    proof: Proof | None = None
    params: SolveParams = DEFAULTS

    def __str__(self) -> str:
        return lines_of(summary(self))

    def __repr__(self) -> str:
        p, n = self.instance.devices, self.instance.microbatches
        return f"<Result {self.method} {p}x{n}: {self.status}, cost {self.cost}, bound {self.bound}>"

    def _repr_html_(self) -> str:
        """Return the summary and, below it, the Gantt chart as HTML, which a notebook shows."""
        text = f"<pre>{escape(str(self))}</pre>"
        if self.schedule is None:
            return text
        from ..drawing.plot_schedule import html_of  # imported late because drawing imports the core

        return text + html_of(self.schedule, label=self.method, bound=self.bound)

    def to_frame(self) -> pd.DataFrame:
        """Return the schedule as `Schedule.to_frame` does.

        Raises
        ------
        NoScheduleError
            If the method found no schedule; the message says why.
        """
        if self.schedule is None:
            raise NoScheduleError(f"{self.method}: {self.status}: {self.reason}")
        return self.schedule.to_frame()

    def certificate(self, time_limit: float = 60.0) -> Certificate | None:
        """Return a certificate for the bound, as `tightpipe.certify` does; None where nothing is proven.

        Parameters
        ----------
        time_limit
            Seconds to search for a proof that the checker can check.
        """
        if self.bound is None:
            return None
        from ..certificates import certify  # imported late because certificates imports the core

        return certify(self.instance, self.bound, proof=self.proof, time_limit=time_limit)

    @property
    def cost(self) -> int | None:
        """Value of the objective in ticks; None without a schedule."""
        return None if self.schedule is None else metrics.cost(self.schedule)

    @property
    def work(self) -> int:
        """Largest `Instance.work` of a device, in ticks: the cost of a schedule less its bubble."""
        return metrics.largest_work(self.instance)

    @property
    def device_busy(self) -> list[int]:
        """Busy time of each device in ticks; without a schedule, `Instance.work` of each device."""
        if self.schedule is None:
            return metrics.works(self.instance)
        return [int(ticks) for ticks in metrics.busy_times(self.schedule)]

    @property
    def imbalance(self) -> float:
        """Largest over mean busy time of the devices, minus 1; 0 where all devices work equally long."""
        return metrics.imbalance(self.device_busy)

    @property
    def busiest(self) -> list[int]:
        """Devices with the largest busy time, in ascending order; all of them where work is even."""
        return metrics.busiest(self.device_busy)

    @property
    def bubble(self) -> int | None:
        """Cost minus work, in ticks; None without a schedule."""
        return None if self.schedule is None else metrics.bubble(self.schedule)

    @property
    def bubble_rate(self) -> float | None:
        """Bubble as a share of the cost, between 0 and 1; None without a schedule."""
        return None if self.schedule is None else metrics.bubble_rate(self.schedule)

    @property
    def gap(self) -> float | None:
        """(cost - bound) / cost, the largest share that another schedule could save; None if unknown."""
        cost = self.cost
        return None if cost is None or self.bound is None else (cost - self.bound) / cost

    @property
    def peak_memory(self) -> int | None:
        """Largest memory that any device holds, in the instance's unit; None without a schedule."""
        return None if self.schedule is None else int(metrics.peak_memory(self.schedule).max())

    def to_dict(self) -> dict[str, Any]:
        """Return the figures of the result and its log as plain data, without the schedule.

        Returns
        -------
        dict
            The attributes of the same names, and `log` as a list of tables with `seconds`, `cost` and
            `bound`. If there is a schedule, also `device_busy`, `objective`, the functions `costs`,
            `bubble_over_ideal` and `total_time` of `tightpipe.core.metrics`, and `device_span`, a list of the
            spans in ticks. If
            parameters were given, also `params`: those that are not the defaults, by keys such as
            ``anneal.reach``.
        """
        keys = (
            *("method", "cost", "work", "imbalance", "busiest", "bubble", "bubble_rate"),
            *("bound", "proof", "gap", "peak_memory", "reason"),
        )
        numbers = {key: getattr(self, key) for key in keys}
        if self.schedule is not None:
            numbers["objective"] = str(self.instance.objective)
            numbers["costs"] = metrics.costs(self.schedule)
            numbers["bubble_over_ideal"] = metrics.bubble_over_ideal(self.schedule)
            numbers["total_time"] = metrics.total_time(self.schedule)
            numbers["device_busy"] = self.device_busy
            numbers["device_span"] = metrics.device_spans(self.schedule).tolist()
        log = [{"seconds": round(e.seconds, 3), "cost": e.cost, "bound": e.bound} for e in self.log]
        return {
            "status": str(self.status),
            **numbers,
            **self.params.record(),
            "seconds": round(self.seconds, 3),
            "log": log,
        }
