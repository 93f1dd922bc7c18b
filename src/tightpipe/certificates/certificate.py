"""A certificate is a file with the proof of a lower bound, which the small checker `check_proof` verifies."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tightpipe.solver.bounds.formulas.copies import least_room
from tightpipe.solver.bounds.formulas.two_times import three_times, two_times
from tightpipe.solver.bounds.relaxed import narrower
from tightpipe.solver.queues import Rule, is_modelled

from ..base.files import write_text
from ..model.instance import Instance
from ..model.instance_file import instance_to_dict
from ..model.result import Proof
from ..params.budget import Budget
from ..params.solve_params import DEFAULTS, SolveParams
from . import check_proof
from .check_proof import Problem, RefutedError, Windows
from .derivation import Derivation, Step, overload_step, room_step, three_times_step
from .refuting import Refuter, UnprovenError, trimmed

_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Certificate:
    """A lower bound of the cost, with a proof or only with the name of what the bound rests on."""

    instance: Instance  #: the problem
    bound: int  #: the proven lower bound of the cost, in ticks
    #: the entry `proof` of the certificate's file, which has the key `kind`. If the kind is ``windows``, it
    #: also has `steps`, the steps of the proof, and `anchor`, the device whose span begins at time 0. If the
    #: kind is ``trusted``, there are no steps, and `by` names what the bound rests on.
    proof: dict[str, Any]

    @property
    def trusted(self) -> bool:
        """Whether the certificate has no proof, and only names what the bound rests on."""
        return bool(self.proof["kind"] == "trusted")

    def to_dict(self) -> dict[str, Any]:
        """Return the content of the certificate's file."""
        problem = instance_to_dict(self.instance)
        return {"format": check_proof.FORMAT, "instance": problem, "bound": self.bound, "proof": self.proof}

    def save(self, path: str | Path) -> None:
        """Write the certificate as a JSON file, compressed if the path ends in ``.gz``.

        Raise an InputError if the file cannot be written.
        """
        write_text(path, json.dumps(self.to_dict(), separators=(",", ":")) + "\n")


@dataclass(frozen=True, slots=True)
class _Formula:
    """A formula for a lower bound that has a short proof, with the two devices for which it proves most."""

    anchor: int  #: the device whose span begins at time 0; all times of the proof count from there
    worker: int  #: the device that is shown to have too much work
    #: returns the last step of the proof, given the windows after the others; None without a contradiction
    last_step: Callable[[Windows, int], Step | None]


def certify(
    instance: Instance,
    bound: int,
    *,
    proof: Proof | None = None,
    time_limit: float = _SECONDS,
    params: SolveParams = DEFAULTS,
) -> Certificate:
    """Return a certificate for a lower bound of the cost.

    Parameters
    ----------
    instance
        The problem.
    bound
        A lower bound of the cost in ticks, however it was proven.
    proof
        What the bound rests on. The certificate names it if no proof is found that can be checked.
    time_limit
        Seconds to search for a proof that can be checked.
    params
        The numbers that tune this search: those of windows and of shaving.

    Notes
    -----
    The search for a proof does not depend on what proved the bound. First it tries the bounds of two and of
    three times (`docs/theorem.md`), whose proofs have a few steps. Then it tries to show that no schedule
    costs at most ``bound - 1``. For that it narrows the times and orders of operations by the rules of
    `solver.windows`. Where one order of two operations leads to a contradiction, it enters the other order.
    At last it takes open orders one by one, and refutes both possibilities of each.
    """
    try:
        found = _proof(instance, bound - 1, Budget(params=params).within(time_limit))
    except (UnprovenError, check_proof.InputError):  # the latter if the checker takes no such instance
        by = "an unnamed proof" if proof is None else str(proof)
        return Certificate(instance, bound, {"kind": "trusted", "by": by})
    return Certificate(instance, bound, found)


def _proof(instance: Instance, target: int, budget: Budget) -> dict[str, Any]:
    """Return the entry `proof` of a certificate that no schedule costs at most `target`.

    Where fused backwards take less than B and W, `long` says which of the two keeps its ticks
    (`check_proof.Problem.split`), and the proof is about the narrower instance. Raise an UnprovenError if no
    proof is found, or a check_proof.InputError if the instance is too large for the checker.
    """
    if not is_modelled(instance, *_KNOWN) or target >= check_proof.LATEST:
        raise UnprovenError
    free = replace(instance, costs=replace(instance.costs, link_occupancy=0))  # only lowers the optimum
    whole = Problem(instance_to_dict(free))
    sides = [({"long": side}, whole.split(side)) for side in "BW"] if free.fusing_saves else [({}, whole)]
    found = {_times(problem): (entry, problem) for entry, problem in reversed(sides)}  # may be the same
    about = [(narrow, found[_narrow_times(narrow.instance, len(whole.time))]) for narrow in narrower(free)]
    for narrow, (entry, problem) in about:
        for formula in (*_formulas(narrow.instance), *_rooms(instance, target)):
            steps = _two_walks(problem, target, formula)
            if steps is not None:
                return _entry(problem, target, formula.anchor, steps, entry)
    anchor = instance.placement.routes[0][0]
    for number, (narrow, (entry, problem)) in enumerate(about, 1):
        share = budget.within(budget.left * number / len(about))
        refuter = Refuter(narrow.instance, problem, target, target - narrow.around, share)
        with suppress(UnprovenError):
            return _entry(problem, target, anchor, refuter.steps(), entry)
    raise UnprovenError


_KNOWN = (Rule.FUSED, Rule.ABSENT, Rule.STEP, Rule.CLASSES, Rule.FLUSHES, Rule.OFFLOAD)
_Times = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]


def _times(problem: Problem) -> _Times:
    """Return the ticks of the B's and the W's of each class in the form of the checker."""
    return tuple((tuple(time["B"]), tuple(time["W"])) for time in problem.time)


def _narrow_times(instance: Instance, classes: int) -> _Times:
    """Return the same of an instance of this package, whose `classes` may all cost the same by now."""
    costs = instance.classes or (instance.costs,) * classes
    return tuple((one.backward, one.weight) for one in costs)  # type: ignore[misc]


def _entry(
    problem: Problem, target: int, anchor: int, steps: list[Step], entry: dict[str, Any]
) -> dict[str, Any]:
    needed = trimmed(problem, target, anchor, steps)
    return {"kind": "windows", "anchor": anchor, "steps": needed, **entry}


def _formulas(instance: Instance) -> Iterator[_Formula]:
    """Yield the formulas of two and of three times (`docs/theorem.md`) with their two devices each."""
    if not instance.complete:
        return
    two = two_times(instance)
    yield _Formula(two.frame or 0, two.worker, overload_step)
    three = three_times(instance)
    frame, worker = np.unravel_index(three.argmax(), three.shape)
    yield _Formula(int(frame), int(worker), three_times_step)


def _rooms(instance: Instance, target: int) -> Iterator[_Formula]:
    """Yield memory times time for each device that cannot do with `target`, if activations may leave."""
    for device in range(instance.devices if instance.offload is not None else 0):
        if least_room(instance, device) > target:
            yield _Formula(device, device, room_step)


def _two_walks(problem: Problem, target: int, formula: _Formula) -> list[Step] | None:
    """Return the steps by which a formula proves that no schedule costs at most `target`, or None.

    The first steps follow the first and the last microbatch of each class from stage to stage, and so limit
    when their operations run. The last step shows that the device `formula.worker` then has too much work.
    """
    steps: list[Step] = []
    try:
        windows = Derivation(problem, target, formula.anchor)  # which may try any number of steps
        ranks = {0, *(count - 1 for *_, count in windows.classes)}
        steps += [*_last_weights(windows), *(["walk", rank] for rank in sorted(ranks))]
        windows.run(steps)
    except RefutedError:
        return steps
    last = formula.last_step(windows, formula.worker)
    return None if last is None else [*steps, last]


def _last_weights(windows: Windows) -> list[Step]:
    """Return the proof steps that show that some W runs after the last B of a stage, on the stage's device.

    These steps are needed only for stages whose W's share a queue (see `check_proof.Windows`) with the W's of
    other stages.
    """
    steps: list[Step] = []
    for w, queue in enumerate(windows.queues):
        ranks = [0] * len(windows.on[queue.device])
        ranks[windows.local[w]] = queue.count
        for b in windows.sources[w] if len(queue.members) > 1 else ():
            last = windows.queues[b].end - 1
            steps += [["pool", queue.end - 1, w, b], ["followed", last, ranks]]
    return steps
