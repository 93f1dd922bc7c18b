"""Schedules in which no device ever idles: planned backward from the end, forward from the start.

`due-date` tries them where memory is plentiful, stages cost the same, spans of devices count, and its rules
leave a bubble. With much memory the beginning of a step is easy: F's arrive, and a device that has nothing
else to do runs one. It is the end that fails. There a device runs only W's after its last B, and a rule that
looks forward in time has too few of them left, or too many, or B's that come at the wrong times.

So the end is planned *backward in time*, where it is the easy side: a device that has nothing else to do runs
a W. Planning begins with what the end of a device must look like. Devices are numbered in the sequence of
their lowest stages. Let two neighbouring ones start f + c apart, an F and a message. As no device idles, all
spans are equal, so the first of the two has to end f + c earlier, or more. Its last B comes b + c later. So
it has f + b + 2c less time for the W's after its last B. W's are whole, so it runs at least
ceil((f + b + 2c) / w) W's fewer there: on a V, device d runs 1 + d ceil((f + b + 2c) / w) W's after its last
B, or more. What these take beyond f + b + 2c is slack: neighbours may start further apart by any part of it.

A try draws these parts at random, and numbers by which devices choose; then all devices run backward from
their ends. Most tries end early, with a device that has nothing to do. Where none has, over about a third of
the step, what is left is run forward from the start by due dates, which are now known exactly: an operation
has to end before what follows it in the planned end starts. The forward side ends in just the state from
which the backward side goes on. A schedule is returned only if it costs as much as the work of a device,
which is the least cost possible.

**How much memory it needs.** The last F of a device is one of its highest stage. Its microbatch goes on to
the last stage and comes back, and not before that the device can run its last B. All this time it runs B's
and W's. What these and the W's after its last B free is held when the last F has run. On the last device of a
V this time is (p - 1)(f + b + 2c) + 2b. With less memory (`least_memory`), every schedule has idle time.

The idea of lists that meet is that of bidirectional list scheduling (Klein, European Journal of Operational
Research 127, 2000, pages 619-638); its use for pipelines is ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from tightpipe.base.errors import NoScheduleError
from tightpipe.kernels.arrays import Floats, Ints
from tightpipe.model.instance import Instance
from tightpipe.model.metrics import cost
from tightpipe.model.operation import OpKind
from tightpipe.model.schedule import Order
from tightpipe.model.simulate import retime
from tightpipe.params.budget import UNLIMITED, Budget

from .both_ends_kernel import NEVER, Chain, Rule, Run, fill
from .family import refuse_infeasible
from .list_schedule import StageCosts, due_date_order, stage_costs

_F, _B, _W = int(OpKind.F), int(OpKind.B), int(OpKind.W)
_CUT = 0.65
"""Share of a span after which the planned end begins. With 0.5 or 0.75, hardly any try succeeds."""
_PACE = 0.3
"""How much earlier each microbatch is due than the next one, in works of a microbatch on a device."""
_WORK, _MOST = 600_000, 600
"""The most tries times operations, and the most tries: about a tenth of a second. More tries seldom help."""


class Try(NamedTuple):
    """What one try draws at random: the numbers by which the backward side chooses."""

    pace: float  # from one microbatch to the next one, in works of a microbatch on a device
    wait: float  # what each F and B of a microbatch waits for its device, in W's
    noise: float  # standard deviation of all due dates, in W's
    rule: Rule
    slack: Floats  # (p,) part of the slack of each device by which it starts later


def tries(seed: int, devices: int) -> Iterator[tuple[Try, np.random.Generator]]:
    """Yield random tries without end, and what draws the noise of each."""
    rng = np.random.default_rng(seed)
    while True:
        rule = Rule(float(rng.integers(2)), rng.uniform(0, 1), rng.uniform(0.3, 1.1))
        drawn = rng.uniform(0.5, 2), rng.uniform(0, 1.5), float(rng.choice((0.0, 0.5, 1.0, 2.0)))
        yield Try(*drawn, rule, rng.uniform(0, 1, devices)), rng


def due_date_or_idle_free_order(
    instance: Instance, budget: Budget = UNLIMITED, sequence: Ints | None = None
) -> Order:
    """Return the order of `due_date_order`, or if that leaves a bubble one without, if any try finds one.

    Parameters and errors are those of `list_schedule.list_order`.
    """
    order = due_date_order(instance, budget, sequence)
    try:
        problem = _problem_of(instance)
    except NoScheduleError:
        return order
    if budget.left <= 0 or cost(retime(instance, order)) == problem.span:
        return order
    return problem.idle_free(budget) or order


def idle_free_order(instance: Instance, budget: Budget = UNLIMITED) -> Order:
    """Return an order without idle time, whose cost is the work of each device.

    Raise an InfeasibleError if the instance has no schedule. Raise a NoScheduleError if stages differ, if
    memory or microbatches cannot suffice, if the objective is not ``device_span``, or if no try succeeds. The
    number of tries falls with the number of operations, and they end with the time of the budget.
    """
    refuse_infeasible(instance)
    order = _problem_of(instance).idle_free(budget)
    if order is None:
        raise NoScheduleError("no schedule without idle time was found")
    return order


def _problem_of(instance: Instance) -> _Problem:
    """Return the problem of an instance; raise a NoScheduleError if no schedule without idle time exists.

    Raise it for other kinds of instances, too.
    """
    plain = instance.alike and instance.complete and instance.offload is None
    if not plain or instance.fusing_saves or instance.has_pairs:
        kind = "microbatches that are alike, with separate B's and W's"
        raise NoScheduleError(f"both ends are planned for {kind}")
    if instance.whole or len(instance.placement.routes) > 1:
        raise NoScheduleError("both ends are planned for device_span, and microbatches that travel one way")
    costs = stage_costs(instance)
    if any((values != values[:, :1]).any() for values in (costs.duration, costs.delta)):
        raise NoScheduleError("both ends are planned for stages that cost the same")
    problem = _Problem(instance, costs)
    for device, limit in enumerate(costs.limit.tolist()):
        least = problem.least_memory(device)
        if least is None:
            raise NoScheduleError("a schedule without idle time needs more microbatches")
        if least > limit:
            rule = f"needs a memory limit of at least {least} on device {device}, and has {limit}"
            raise NoScheduleError(f"a schedule without idle time {rule}")
    return problem


@dataclass(frozen=True)
class _Problem:
    """An instance, and what does not change from one try to the next; S stages, p devices, n microbatches.

    Times of the backward side are mirrored: tick t of the step is -t.
    """

    instance: Instance
    costs: StageCosts

    @property
    def span(self) -> int:
        """The work of a device, and the span that a schedule may have."""
        return self.instance.work(0)

    @property
    def weight(self) -> int:
        """Ticks of a W."""
        return int(self.costs.duration[_W, 0])

    @cached_property
    def lowest(self) -> Ints:
        """The lowest stage of each device, shape (p,); in all placements with one route these ascend."""
        stages_on = self.instance.placement.stages_on
        return np.array([stages_on(device)[0] for device in range(self.instance.devices)])

    @cached_property
    def forward(self) -> Chain:
        """The F's of a microbatch, from the first stage to the last, and its B's back to the first."""
        up = np.arange(self.instance.stages)
        kind, stage = np.repeat([_F, _B], len(up)), np.concatenate([up, up[::-1]])
        return self._chain(kind, stage, self.costs.lag[kind, stage], mirrored=False)

    @cached_property
    def backward(self) -> Chain:
        """The same in mirrored time: the B's of a microbatch from the first stage on, and then its F's."""
        chain = self.forward
        kind = np.where(chain.backward[::-1], _B, _F)
        return self._chain(kind, chain.stage[::-1], np.append(0, chain.lag[:0:-1]), mirrored=True)

    def _chain(self, kind: Ints, stage: Ints, lag: Ints, *, mirrored: bool) -> Chain:
        costs, device = self.costs, self.costs.device[stage]
        delta = -costs.delta if mirrored else costs.delta
        return Chain(
            device=_packed(device),
            stage=_packed(stage),
            backward=_packed(kind == _B),
            ticks=_packed(costs.duration[kind, stage]),
            takes=_packed(delta[kind, stage]),
            lag=_packed(lag),
            local=_packed([np.flatnonzero(device == d) for d in range(self.instance.devices)]),
            weight_ticks=_packed(costs.duration[_W]),
            weight_takes=_packed(delta[_W]),
            limit=_packed(costs.limit),
            mirrored=mirrored,
        )

    @cached_property
    def starts(self) -> Ints:
        """Earliest start of each device, shape (p,): that of the first F of its lowest stage."""
        return np.array([_way(self.forward, 0, stage) for stage in self.lowest])

    @cached_property
    def apart(self) -> Ints:
        """How much more time each device has after its last B than the one before it, shape (p - 1,)."""
        trips = [_way(self.backward, 0, stage) for stage in self.lowest]
        return np.diff(self.starts + trips)

    @cached_property
    def later(self) -> Ints:
        """How many W's each device runs after its last B, at least, shape (p,)."""
        return 1 + np.append(0, np.cumsum(-(-self.apart // self.weight)))

    @cached_property
    def away(self) -> Ints:
        """Least ticks from the end of the last F of each device to the end of its last B, shape (p,)."""
        half = self.backward.local.shape[1] // 2
        return np.array([_way(self.backward, places[0], places[half]) for places in self.backward.local])

    def least_memory(self, device: int) -> int | None:
        """Return what a device holds after its last F, at least, if no device ever idles.

        It is the least over the number of W's that run between its last F and its last B, the rest of this
        time being filled by B's. None means that there are too few B's and W's to fill it.
        """
        _, b, w = self.costs.duration[:, 0].tolist()
        _, freed, pending = (-self.costs.delta[:, 0]).tolist()
        away, later = int(self.away[device]), int(self.later[device])
        most = self.instance.microbatches * self.instance.stages // self.instance.devices
        early = np.arange(min(-(-away // w), most - later) + 1)
        backwards = np.maximum(0, -(-(away - early * w) // b))
        held = (backwards * freed + (later + early) * pending)[backwards <= most]
        return int(held.min()) if len(held) else None

    def idle_free(self, budget: Budget) -> Order | None:
        """Return an order without idle time; None if the tries within the budget find none."""
        most = min(_MOST, _WORK // (3 * self.instance.stages * self.instance.microbatches))
        for drawn, rng in islice(tries(budget.seed, self.instance.devices), most):
            if budget.left <= 0:
                return None
            order = self.order(drawn, rng)
            if order is not None and cost(retime(self.instance, order)) == self.span:
                return order
        return None

    def order(self, drawn: Try, rng: np.random.Generator) -> Order | None:
        """Return the order of a try; None if a device idles."""
        begin = self._begin(drawn)
        back = self._backward(drawn, rng, begin)
        ahead = None if back is None else self._forward(begin, back)
        if back is None or ahead is None:
            return None
        rows = [
            np.concatenate(
                [self._operations(self.forward, ahead, d), self._operations(self.backward, back, d)[::-1]]
            )
            for d in range(self.instance.devices)
        ]
        return Order(np.concatenate(rows), np.cumsum([0, *map(len, rows)]))

    def _begin(self, drawn: Try) -> Ints:
        """Return when each device starts, shape (p,), later than it may by parts of the slack of its W's."""
        slack = np.diff(self.later) * self.weight - self.apart
        late = np.cumsum(drawn.slack[1:] * slack)
        return self.starts + np.append(0, late).astype(np.int64)

    def _backward(self, drawn: Try, rng: np.random.Generator, begin: Ints) -> Run | None:
        """Return the backward side, from the ends of all spans; None if a device would idle."""
        chain, n = self.backward, self.instance.microbatches
        along = np.cumsum(chain.ticks + chain.lag + drawn.wait * self.weight) - chain.ticks
        key = along[:, None] + drawn.pace * self.span / n * np.arange(n)
        key += rng.normal(size=key.shape) * drawn.noise * self.weight
        ends, stop = -(begin + self.span), -(begin + int(_CUT * self.span))
        run = self._run(ends, stop, self.later, ends + self.later * self.weight + self.away)
        return run if fill(chain, key, drawn.rule, run) else None

    def _forward(self, begin: Ints, back: Run) -> Run | None:
        """Return the forward side, which runs all that the backward side has not; None if a device idles."""
        n, nothing = self.instance.microbatches, np.zeros_like(begin)
        run = self._run(begin, -back.clock, nothing, nothing)
        run = run._replace(most=n - back.done[::-1], most_weights=n - back.done_weights)
        return run if fill(self.forward, self._due(back), Rule(0.0, 0.0, float(NEVER)), run) else None

    def _due(self, back: Run) -> Floats:
        """Return when each F and B should start at the latest on the forward side, shape (2 S, n)."""
        chain, n, number = self.forward, self.instance.microbatches, np.arange(self.instance.microbatches)
        pace, left = number * _PACE * self.span / n, n - back.done[::-1]
        # what the backward side has run starts at these ticks; the forward side fills in the other ones
        due = -back.end[::-1, ::-1].astype(np.float64)
        weights = -back.weight_end[:, ::-1]
        for place in reversed(range(len(due))):
            latest = np.full(n, float(-back.clock[chain.device[place]]))
            if place + 1 < len(due):
                latest = np.minimum(latest, due[place + 1] - chain.lag[place + 1])
            if chain.backward[place]:
                stage = chain.stage[place]
                planned = number >= n - back.done_weights[stage]
                latest = np.where(planned, np.minimum(latest, weights[stage]), latest)
            mine = (latest - chain.ticks[place] - pace)[: left[place]]
            due[place, : left[place]] = np.minimum.accumulate(mine[::-1])[::-1] + pace[: left[place]]
        return due

    def _run(self, clock: Ints, stop: Ints, weights: Ints, first: Ints) -> Run:
        """Return a run in which nothing has run, and everything may."""
        p, n, stages = self.instance.devices, self.instance.microbatches, self.instance.stages
        return Run(
            clock=clock.copy(),
            held=np.zeros(p, np.int64),
            weights=weights.copy(),
            first=first,
            stop=stop,
            most=np.full(2 * stages, n),
            most_weights=np.full(stages, n),
            done=np.zeros(2 * stages, np.int64),
            done_weights=np.zeros(stages, np.int64),
            end=np.zeros((2 * stages, n), np.int64),
            weight_end=np.zeros((stages, n), np.int64),
            ran=np.zeros((p, 3 * stages // p * n, 2), np.int64),
            size=np.zeros(p, np.int64),
        )

    def _operations(self, chain: Chain, run: Run, device: int) -> Ints:
        """Return the operations that a device ran, in the sequence of the run, as rows of an order."""
        what, k = run.ran[device, : run.size[device]].T
        kind = np.where(what < 0, _W, np.where(chain.backward[what], _B, _F))
        stage = np.where(what < 0, -1 - what, chain.stage[what])
        return np.stack([kind, stage, self.instance.microbatches - 1 - k if chain.mirrored else k], axis=1)


def _packed(values: ArrayLike) -> Ints:
    """Return values as an array of the one layout for which the loop is compiled."""
    return np.ascontiguousarray(values, dtype=np.int64)


def _way(chain: Chain, first: int, last: int) -> int:
    """Return the ticks from the start of an F or B to that of a later one of its microbatch, at least."""
    return int(chain.ticks[first:last].sum() + chain.lag[first + 1 : last + 1].sum())
