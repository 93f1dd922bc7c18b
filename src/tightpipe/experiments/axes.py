"""A value of an experiment's axis is read as a change of an instance, e.g. of its memory limit.

The page docs/studies.md has the forms in which values are written.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from operator import mul
from typing import Any

from ..base.errors import LARGEST, InputError, check_int
from ..base.files import check_keys
from ..model.costs import Objective, Offload, PerStage
from ..model.instance import Instance
from ..model.instance_file import instance_from_dict, instance_to_dict
from ..model.metrics import limits_of_activations, peak_of_1f1b
from ..model.microbatches import changed, with_times
from ..model.operation import OpKind
from ..settings import DISTRIBUTIONS, relative_lengths, with_lengths, with_slices
from .placing import discounted

OWN = "own"
OF_1F1B = " of 1F1B"
"""How the label of a memory limit ends that is a multiple of the peak memory of 1F1B."""
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)([pxf])")


@dataclass(frozen=True, slots=True)
class Change:
    """A value of an axis: `apply` returns the changed instance, `label` is the value's text in the rows."""

    label: str
    apply: Callable[[Instance], Instance]


class HoldsNothingError(InputError):
    """A memory limit that holds no forward activation of a device: with it, an instance has no schedule."""


UNCHANGED = Change(OWN, lambda instance: instance)
"""The value of an axis that leaves the instance as its file or setting has it."""


def parse_devices(value: Any) -> Change:
    """Return the change to a number of devices; ``own`` changes nothing."""
    if value == OWN:
        return UNCHANGED
    count = check_int("devices", value, 1)
    return Change(str(count), lambda instance: _resized(instance, "devices", count))


def parse_microbatches(value: Any) -> Change:
    """Return the change to a number of microbatches; ``own`` changes nothing."""
    if value == OWN:
        return UNCHANGED
    if isinstance(value, str):
        factor = _amount(value, "p", "3p, a number, or own")
        return Change(value, lambda i: _resized(i, "microbatches", math.floor(factor * i.devices)))
    count = check_int("microbatches", value, 1)
    return Change(str(count), lambda instance: _resized(instance, "microbatches", count))


def parse_uneven(value: Any) -> Change:
    """Return the change that makes stages or microbatches unlike, by a table.

    Its keys are `first` and `last`, factors of the durations of these stages; or `lengths` and `sigma`, a
    distribution of `settings.DISTRIBUTIONS`; or `slices`, as in `settings.with_slices`.
    """
    if isinstance(value, dict) and "slices" in value:
        check_keys(value, ("slices",), ())
        count = check_int("slices", value["slices"], 1, 1024)
        return Change(f"slices {count}", lambda i: with_slices(i, count))
    if isinstance(value, dict) and "lengths" in value:
        check_keys(value, ("lengths", "sigma"), ())
        name, sigma = value["lengths"], value["sigma"]
        if not isinstance(name, str) or name not in DISTRIBUTIONS:
            raise InputError(f"must be one of {', '.join(DISTRIBUTIONS)}", key="lengths", value=name)
        _number(sigma, lambda number: 0 <= number <= 100, "a number from 0 to 100", "sigma")
        return Change(
            f"{name} {sigma:g}", lambda i: with_lengths(i, relative_lengths(name, sigma, i.microbatches))
        )
    check_keys(value, (), ("first", "last"))
    for key, factor in value.items():
        _number(factor, lambda number: 0 < number <= 100, "a factor above 0, at most 100", key)
    label = " ".join(f"{key} {factor:g}" for key, factor in value.items())
    return Change(label, lambda i: _scaled(i, value.get("first", 1), value.get("last", 1)))


def parse_comm(value: Any) -> Change:
    """Return the change to a communication time."""
    if value == OWN:
        return UNCHANGED
    if isinstance(value, str):
        factor = _amount(value, "fx", "0.25f, 2x, a number of ticks, or own")
        scaled = _comm_of_forward if value.endswith("f") else _comm_of_own
        return Change(value, lambda instance: _with_comm(instance, scaled(instance, factor)))
    ticks = check_int("comm", value, 0)
    return Change(str(ticks), lambda instance: _with_comm(instance, ticks))


def parse_memory(value: Any) -> Change:
    """Return the change to a memory limit of each device.

    At ``smallest``, the limit is the smallest one at which there is a schedule, and at ``longest``, a device
    holds its p longest microbatches, as 1F1B may have to.
    """
    if value == OWN:
        return UNCHANGED
    if value == "none":
        return Change(value, lambda instance: _with_limit(instance, None))
    if value == "smallest":
        return Change(value, lambda i: _with_limit(i, [i.smallest_limit(d) for d in range(i.devices)]))
    if value == "longest":
        return Change(value, lambda i: _with_limit(i, [_longest(i, d) for d in range(i.devices)]))
    if isinstance(value, str):
        factor = _amount(value, "px", "2p, 0.5x, smallest, longest, none, own, or a number")
        if value.endswith("p"):
            return Change(f"{float(factor):g}p", lambda i: _with_activations(i, factor))
        return Change(value, lambda instance: _with_limit(instance, _limits_of_own(instance, factor)))
    units = check_int("memory", value, 0)
    return Change(str(units), lambda instance: _with_limit(instance, units))


def parse_memory_of_1f1b(value: Any) -> Change:
    """Return the change to a memory limit of each device in multiples of the peak memory of 1F1B."""
    factor = _number(value, lambda number: 0 < number < 1e6, "a number above 0, e.g. 0.5")
    return Change(f"{value:g}{OF_1F1B}", lambda i: _with_limit(i, math.floor(factor * peak_of_1f1b(i))))


def parse_discount(value: Any) -> Change:
    """Return the change to fused backwards that take a share less than B and W apart."""
    if value == OWN:
        return UNCHANGED
    share = _number(value, lambda number: 0 <= number < 1, "a number from 0 to below 1, e.g. 0.1, or own")
    return Change(f"{value:g}", lambda instance: discounted(instance, share))


def parse_offload(value: Any) -> Change:
    """Return the change to what may leave a device; ``own`` changes nothing, and at ``none`` nothing leaves.

    ``{k = 1}`` lets all leave that an F adds: its copies out and back take together k times as long as F, B
    and W of its stage, half of that each, rounded. A ``share`` of it takes that share of the time. With
    ``duplex = false``, one engine of a device makes both copies.
    """
    if value == OWN:
        return UNCHANGED
    if value == "none":
        return Change(value, lambda instance: replace(instance, offload=None))
    if not isinstance(value, dict):
        raise InputError("must be own, none or a table such as {k = 1}", value=value)
    check_keys(value, ("k",), ("share", "duplex"))
    k = _number(value["k"], lambda number: 0 < number <= 100, "a number above 0, at most 100", "k")
    share = _number(
        value.get("share", 1), lambda number: 0 < number <= 1, "a number above 0, at most 1", "share"
    )
    duplex = value.get("duplex", True)
    if not isinstance(duplex, bool):
        raise InputError("must be true or false", key="duplex", value=duplex)
    label = f"k {float(k):g}" + f" share {float(share):g}" * (share != 1) + " one engine" * (not duplex)
    return Change(label, lambda instance: _offloading(instance, k, share, duplex))


def _number(value: Any, allowed: Callable[[float], bool], rule: str, key: str = "") -> Fraction:
    if isinstance(value, bool) or not isinstance(value, int | float) or not allowed(value):
        raise InputError(f"must be {rule}", key=key, value=value)
    return Fraction(str(value))


def parse_objective(value: Any) -> Change:
    """Return the change to an objective."""
    if value == OWN:
        return UNCHANGED
    if value not in list(Objective):
        raise InputError(f"must be one of {', '.join(Objective)}, {OWN}", value=value)
    return Change(value, lambda instance: replace(instance, objective=value))


def named_change(key: str, parse: Callable[[Any], Change], value: object) -> Change:
    """Return the change that `value` asks for; if it is wrong, the InputError names the option `key`."""
    try:
        return parse(value)
    except InputError as error:
        raise InputError(error.rule, key=key, value=value) from None


def _amount(text: str, units: str, rule: str) -> Fraction:
    match = _AMOUNT.fullmatch(text)
    if match is None or match[2] not in units:
        raise InputError(f"must be {rule}", value=text)
    return Fraction(match[1])


def _resized(instance: Instance, key: str, count: int) -> Instance:
    return instance_from_dict({**instance_to_dict(instance), key: count})


def _scaled(instance: Instance, first: float, last: float) -> Instance:
    factors = [1.0] * instance.stages
    factors[0] *= first
    factors[-1] *= last

    def scaled(ticks: PerStage) -> PerStage:
        return tuple(t and max(1, round(f * t)) for f, t in zip(factors, ticks, strict=True))

    return with_times(instance, lambda c: changed(instance.class_costs[c].duration, scaled))


def _with_comm(instance: Instance, comm: Any) -> Instance:
    return replace(instance, costs=replace(instance.costs, comm=comm))


def _comm_of_forward(instance: Instance, factor: Fraction) -> int:
    forward = (sum(one.duration[OpKind.F]) for one in instance.class_costs)
    total: int = sum(map(mul, instance.class_counts, forward))
    return round(factor * total / (instance.units * instance.stages))


def _comm_of_own(instance: Instance, factor: Fraction) -> list[list[int]]:
    devices = range(instance.devices)
    return [[round(factor * instance.comm(a, b)) for b in devices] for a in devices]


def _with_limit(instance: Instance, limit: Any) -> Instance:
    if instance.memory is None:
        raise InputError("the instance says nothing about memory, so a limit has no meaning")
    try:
        return replace(instance, memory=replace(instance.memory, limit=limit))
    except InputError as error:
        if isinstance(error.value, int) and error.value > LARGEST:
            raise  # as it says nothing of what fits
        # all other errors of limits are those of the values, which were read before
        raise HoldsNothingError(error.rule, key=error.key, value=error.value) from None


def _offloading(instance: Instance, k: Fraction, share: Fraction, duplex: bool) -> Instance:
    if instance.memory is None:
        raise InputError("the instance says nothing about memory, so nothing can leave")
    classes, stages = range(len(instance.class_counts)), range(instance.stages)
    memory = [math.floor(share * min(instance.memory_delta(OpKind.F, s, c) for c in classes)) for s in stages]
    took = [max(sum(instance.duration(kind, s, c) for kind in _APART) for c in classes) for s in stages]
    ticks = [max(1, round(share * k * each / 2)) for each in took]
    return replace(instance, offload=Offload(memory, ticks, ticks, duplex))


_APART = OpKind.F, OpKind.B, OpKind.W


def _longest(instance: Instance, device: int) -> int:
    """Return the memory of the p microbatches that hold most on a device, all their F's included."""
    held = sorted((instance.held_of(m, device) for m in range(instance.microbatches)), reverse=True)
    return max(instance.smallest_limit(device), sum(held[: instance.devices]))


def _with_activations(instance: Instance, factor: Fraction) -> Instance:
    """Return the instance with room for `factor` p forward activations of one stage, rounded down."""
    activations = math.floor(factor * instance.devices)
    return _with_limit(instance, list(limits_of_activations(instance, activations)))


def _limits_of_own(instance: Instance, factor: Fraction) -> list[int]:
    own = [instance.memory_limit(d) for d in range(instance.devices)]
    if None in own:
        raise InputError("the instance has no limit of its own that could be multiplied")
    return [math.floor(factor * limit) for limit in own if limit is not None]
