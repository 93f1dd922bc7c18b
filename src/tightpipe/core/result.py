"""What is found out about an instance: Bound by a proof, Result by a method, and the words for both."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from html import escape
from typing import TYPE_CHECKING, Any

from . import metrics
from .errors import NoScheduleError
from .instance import Instance
from .schedule import Schedule
from .summary import lines_of, summary

if TYPE_CHECKING:
    import pandas as pd


class Status(StrEnum):
    """How a method ended."""

    OPTIMAL = "optimal"  #: a schedule whose cost equals a proven lower bound
    FEASIBLE = "feasible"  #: a schedule
    INFEASIBLE = "infeasible"  #: proven that there is none
    UNKNOWN = "unknown"  #: neither


class Proof(StrEnum):
    """What a bound rests on: an argument of this project, or an answer of a solver that is taken on trust."""

    FORMULA = "formula"  #: a formula with its argument in the docstring
    ENERGETIC = "energetic"  #: under a lower cost, a device has more to do between two times than it can
    SHAVING = "shaving"  #: propagation, with suppositions that lead to contradictions
    FLUID = "fluid"  #: linear inequalities without a solution, checked in integers
    CP_SAT = "cp-sat"  #: CP-SAT searched everything; trusted
    MILP = "milp"  #: a mixed-integer solver's dual bound; trusted

    @property
    def trusted(self) -> bool:
        """Whether it rests on another solver's word, which nothing here checks."""
        return self in (Proof.CP_SAT, Proof.MILP)


@dataclass(frozen=True, slots=True)
class Bound:
    """A proven lower bound of the cost.

    Parameters
    ----------
    value
        In ticks: no schedule of the instance costs less.
    name
        Name of the bound.
    argument
        Why it holds here, in one line for people.
    seconds
        Wall time of its computation.
    proof
        What kind of argument it is.
    """

    value: int
    name: str
    argument: str
    seconds: float
    proof: Proof = Proof.FORMULA


@dataclass(frozen=True, slots=True)
class LogEntry:
    """Incumbent cost, best bound and its proof after `seconds`; None while there is none."""

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
        How it ended.
    schedule
        A validated schedule, or None.
    bound
        A proven lower bound of the cost in ticks, or None where nothing is proven.
    seconds
        Wall time.
    log
        Incumbents and bounds over time.
    reason
        Why there is no schedule, or why a method ended early: `interrupted` by Ctrl-C, `terminated` by
        SIGTERM, or a sentence; empty otherwise.
    proof
        What the bound rests on; None where nothing is proven, or where the caller gave the bound.
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

    def __str__(self) -> str:
        return lines_of(summary(self))

    def __repr__(self) -> str:
        p, n = self.instance.devices, self.instance.microbatches
        return f"<Result {self.method} {p}x{n}: {self.status}, cost {self.cost}, bound {self.bound}>"

    def _repr_html_(self) -> str:
        """Show the summary above the Gantt chart in a notebook."""
        text = f"<pre>{escape(str(self))}</pre>"
        if self.schedule is None:
            return text
        from ..drawing.show import html_of  # a drawing stands above the core

        return text + html_of(self.schedule, label=self.method, bound=self.bound)

    def to_frame(self) -> pd.DataFrame:
        """Return the schedule as `Schedule.to_frame` does.

        Raises
        ------
        NoScheduleError
            If the method found none; the message says why.
        """
        if self.schedule is None:
            raise NoScheduleError(f"{self.method}: {self.status}: {self.reason}")
        return self.schedule.to_frame()

    @property
    def cost(self) -> int | None:
        """Value of the objective, in ticks."""
        return None if self.schedule is None else metrics.cost(self.schedule)

    @property
    def work(self) -> int:
        """Largest work of a device, in ticks."""
        if self.schedule is None:
            return metrics.largest_work(self.instance)
        return metrics.work(self.schedule)

    @property
    def device_busy(self) -> list[int]:
        """Ticks that each device computes; without a schedule its least work."""
        if self.schedule is None:
            return metrics.works(self.instance)
        return [int(ticks) for ticks in metrics.busy_times(self.schedule)]

    @property
    def imbalance(self) -> float:
        """Largest over mean busy time of a device, minus 1; 0 where all devices work alike."""
        return metrics.imbalance(self.device_busy)

    @property
    def busiest(self) -> list[int]:
        """Devices with the largest busy time, ascending; all of them where all devices work alike."""
        return metrics.busiest(self.device_busy)

    @property
    def bubble(self) -> int | None:
        """Cost - work, in ticks."""
        return None if self.schedule is None else metrics.bubble(self.schedule)

    @property
    def bubble_rate(self) -> float | None:
        """Bubble / cost."""
        return None if self.schedule is None else metrics.bubble_rate(self.schedule)

    @property
    def gap(self) -> float | None:
        """(cost - bound) / cost; None unless both are known."""
        cost = self.cost
        return None if cost is None or self.bound is None else (cost - self.bound) / cost

    @property
    def peak_memory(self) -> int | None:
        """Largest memory of a device."""
        return None if self.schedule is None else int(metrics.peak_memory(self.schedule).max())

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as plain data, without the schedule."""
        keys = (
            *("method", "cost", "work", "imbalance", "busiest", "bubble", "bubble_rate"),
            *("bound", "proof", "gap", "peak_memory", "reason"),
        )
        numbers = {key: getattr(self, key) for key in keys}
        if self.schedule is not None:
            numbers["bubble_over_ideal"] = metrics.bubble_over_ideal(self.schedule)
            numbers["total_time"] = metrics.total_time(self.schedule)
            numbers["device_busy"] = self.device_busy
            numbers["device_span"] = metrics.device_spans(self.schedule).tolist()
        log = [{"seconds": round(e.seconds, 3), "cost": e.cost, "bound": e.bound} for e in self.log]
        return {"status": str(self.status), **numbers, "seconds": round(self.seconds, 3), "log": log}
