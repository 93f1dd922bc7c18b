"""What is known about an instance: a Bound comes from a proof, and a Result from a method.

A wrong bound must never pass for a proof of optimality. So a bound is never lowered to the cost of the best
known schedule, which would hide the fault: the two are compared, and a contradiction raises an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from html import escape
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any

from ..base.errors import ContradictionError, NoScheduleError
from ..params.solve_params import DEFAULTS, SolveParams
from . import metrics
from .instance import Instance
from .metrics import cost, costs
from .schedule import Schedule
from .schedule_file import schedule_to_dict

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
        from ..drawing import html_of  # imported late because drawing imports the model

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
        from ..certificates import certify  # imported late because certificates imports the model

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
            return list(metrics.works(self.instance))
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
            `bubble_over_ideal` and `total_time` of `model.metrics`, and `device_span`, a list of the
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


def summary(result: Result) -> dict[str, object]:
    """Return the lines of a result's text as label and value; a value of None or "" means no line."""
    return {
        "method": result.method,
        "status": status_text(result.status, result.proof),
        "cost": result.cost,
        "objective": objective_text(result.schedule),
        "bound": result.bound,
        "gap": share_text(result.gap),
        "work": result.work,
        "imbalance": _imbalance(result),
        "bubble": result.bubble,
        "bubble_rate": share_text(result.bubble_rate),
        "peak_memory": _memory(result),
        "params": result.params.changed_text(),
        "seconds": f"{result.seconds:.3f}",
        "reason": result.reason,
    }


def lines_of(pairs: Mapping[str, object]) -> str:
    """Return a line ``key  value`` for each pair, with the values aligned; None and "" get no line."""
    shown = {key: value for key, value in pairs.items() if value is not None and value != ""}
    width = max(map(len, shown))
    return "\n".join(f"{key:<{width}}  {value}" for key, value in shown.items())


def status_text(status: Status, proof: Proof | None) -> str:
    """Return the status and the kind of proof of the bound, e.g. ``optimal (bound: cp-sat, trusted)``."""
    if proof is None:
        return str(status)
    trusted = ", trusted" if proof.trusted else ""
    return f"{status} (bound: {proof}{trusted})"


def objective_text(schedule: Schedule | None) -> str | None:
    """Return the objective of a schedule, and what it costs under the others."""
    if schedule is None:
        return None
    return f"{schedule.instance.objective} (the same schedule: {other_costs(schedule)})"


def other_costs(schedule: Schedule) -> str:
    """Return what a schedule costs under the objectives that are not its own, e.g. ``makespan 9, step 9``."""
    own, found = str(schedule.instance.objective), costs(schedule)
    return ", ".join(f"{name} {ticks}" for name, ticks in found.items() if name != own)


def _imbalance(result: Result) -> str | None:
    """Return the imbalance and the busiest devices; None if all devices are equally busy."""
    if result.imbalance == 0:  # no device is busier than the others
        return None
    devices = ", ".join(map(str, result.busiest))
    return f"{share_text(result.imbalance)} (busiest device: {devices})"


def _memory(result: Result) -> str | None:
    """Return a device's largest memory, and the limit if all have one; None without a schedule or memory."""
    if result.schedule is None or result.instance.memory is None:
        return None
    limits = {result.instance.memory_limit(device) for device in range(result.instance.devices)}
    (limit,) = limits if len(limits) == 1 else (None,)
    return str(result.peak_memory) if limit is None else f"{result.peak_memory} of {limit}"


def share_text(value: float | None) -> str | None:
    """Return a share as text with six decimals, e.g. ``0.012500``; None where the share is unknown."""
    return None if value is None else f"{value:.6f}"


Progress = Callable[[LogEntry], None]
"""A function that a running solver calls with each new incumbent or bound."""


def ignore(_: LogEntry) -> None:
    """Do nothing with a log entry; this is the progress function of a solve that nobody watches."""


def refuse_contradiction(schedule: Schedule, bound: int | None, proof: Proof | None, name: str = "") -> None:
    """Raise an error if a lower bound is above the cost of a valid schedule.

    The message of the ContradictionError names the kind of proof, the bound, both numbers, and a schedule
    file that holds the instance, for a report of the fault. `proof` is None where the caller gave the bound;
    `name` is that of the bound, where several have the same kind of proof.
    """
    if bound is None or bound <= cost(schedule):
        return
    rests = "given by the caller" if proof is None else f"proof: {proof}{f', {name}' if name else ''}"
    raise ContradictionError(
        f"the bound {bound} ({rests}) is above {cost(schedule)}, the cost of a valid schedule, so the bound "
        f"is wrong and nothing is proven; please report{_evidence(schedule, bound)}"
    )


def _evidence(schedule: Schedule, bound: int) -> str:
    """Write a schedule file with the instance and the bound, and return the end of the error message.

    The message asks the user to report the fault. Its end names the temporary file or, if no file can be
    written, asks for the instance.
    """
    with suppress(OSError):
        with NamedTemporaryFile("w", prefix="tightpipe-", suffix=".json", delete=False) as file:
            json.dump(schedule_to_dict(schedule, bound=bound), file)
        return f" it with the file {file.name}"
    return " the instance"
