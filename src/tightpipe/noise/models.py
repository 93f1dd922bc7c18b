"""The models of noise: jitter of all operations, slow devices and links, bursts on links, and a stall.

A model changes the planned times of a block of samples. A text stands for it in commands, such as
``jitter:0.1``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from ..base.errors import InputError, about_file, check_number
from ..base.files import csv_rows, read_text
from ..kernels.arrays import Bools, Floats, Ints
from ..model.graph_arrays import arrays_of, input_of
from ..model.instance import Instance
from ..model.operation import OpKind

BLOCK = 32
"""Number of samples in a block; the samples of a block are drawn and simulated at once."""


class Times(NamedTuple):
    """The ticks that each operation and each message takes in every sample of a block.

    The instance has S stages, n microbatches and p devices; K is `BLOCK`. Kinds are F, B and W: a fused
    backward takes as long as its B and its W. Times belong to operations and not to places in an order, so an
    operation takes the same time in every schedule of the instance.
    """

    duration: Floats  # (3, S, n, K) of each F, B and W
    lag: Floats  # (2, S, n, K) of the message that each F and B (without B, W) waits for; 0 where for none
    moment: Floats  # (p, K) begin of each device's stall: share of its planned span, or of the makespan
    stall: Floats  # (p, K) ticks for which each device then stands still; 0 for no stall


class NoiseModel(Protocol):
    """The protocol of a model of noise, whose ``str`` is the text that the option ``--noise`` takes."""

    def check(self, instance: Instance) -> None:
        """Raise an InputError if the model does not fit the instance."""

    def apply(self, instance: Instance, times: Times, random: np.random.Generator) -> None:
        """Change the times of a block of samples in place, with random numbers from `random`."""


def planned_times(instance: Instance) -> Times:
    """Return times without noise for a block of samples."""
    graph = arrays_of(instance)
    node = graph.node[:, graph.mb_class].transpose(0, 2, 1)
    waiting = np.stack([node[OpKind.F], np.where(node[OpKind.B] < 0, node[OpKind.W], node[OpKind.B])])
    waits, edges = input_of(graph, graph.nodes[waiting])
    ticks = np.where(node < 0, 0, graph.nodes["duration"][node])
    lag = np.where(waits & (waiting >= 0), edges["lag"], 0)
    duration, lags = (np.repeat(planned[..., None].astype(float), BLOCK, -1) for planned in (ticks, lag))
    moment, stall = np.zeros((2, instance.devices, BLOCK))
    return Times(duration, lags, moment, stall)


def _devices_of(instance: Instance) -> Ints:
    """Return the device that runs each stage for each microbatch, shape (S, n)."""
    graph = arrays_of(instance)
    return np.asarray(graph.nodes["device"][graph.node[OpKind.F, graph.mb_class].T])


def _check_device(instance: Instance, model: NoiseModel, device: int) -> None:
    if not 0 <= device < instance.devices:
        rule = f"the instance has devices 0..{instance.devices - 1}"
        raise InputError(rule, key=f"noise = {str(model)!r}: device", value=device)


_MOST_JITTER = 10


@dataclass(frozen=True, slots=True)
class Jitter:
    r"""Each F, B and W takes its planned duration times a lognormal factor of its own, with mean 1.

    With the coefficient of variation $c$ (standard deviation over mean) the factor is
    $\exp(\sigma z - \sigma^2 / 2)$, where $\sigma^2 = \ln(1 + c^2)$ and $z$ is a standard normal number.
    Factors are above 0 and skewed to the right, as times of kernels are, and the mean work stays as planned.
    """

    #: the coefficient of variation of all operations, from 0 to 10; or three sequences with one number per
    #: stage, for F, for B and for W, as measured
    variation: float | tuple[tuple[float, ...], ...]
    #: origin of measured numbers, e.g. a file. The text of the model shows the origin, not the numbers.
    name: str = ""

    def __post_init__(self) -> None:
        rows = self.variation if isinstance(self.variation, tuple) else ((self.variation,),)
        for row in rows:
            for value in row:
                check_number("jitter", value, 0, _MOST_JITTER)

    def __str__(self) -> str:
        return f"jitter:{self.name or self.variation}"

    def check(self, instance: Instance) -> None:
        """Raise an InputError if there are measured numbers and not one for each stage of the instance."""
        if isinstance(self.variation, tuple) and {len(row) for row in self.variation} != {instance.stages}:
            rule = f"has {len(self.variation[0])} stages, the instance {instance.stages}"
            raise InputError(rule, key="noise", value=str(self))

    def apply(self, instance: Instance, times: Times, random: np.random.Generator) -> None:
        """Multiply each duration by a factor of its own."""
        sigma = np.sqrt(np.log1p(np.square(self.variation)))
        if sigma.ndim:
            sigma = sigma[:, :, None, None]
        factor = random.standard_normal(times.duration.shape)
        factor *= sigma
        factor -= sigma * sigma / 2
        np.exp(factor, out=factor)
        times.duration[:] *= factor


_MOST_SLOWNESS = 1000
_MOST_TICKS = 10**12


@dataclass(frozen=True, slots=True)
class SlowDevice:
    """All operations of one device take their durations times a factor, in every sample.

    Such a straggler is, for example, a GPU that is hot and has lowered its clock.
    """

    device: int  #: number of the device
    #: factor of the durations, above 0 and at most 1000; below 1 for a device that is faster than planned
    factor: float

    def __post_init__(self) -> None:
        check_number("factor", self.factor, 0, _MOST_SLOWNESS, above=True)

    def __str__(self) -> str:
        return f"slow-device:{self.device}:{self.factor:g}"

    def check(self, instance: Instance) -> None:
        """Raise an InputError if the instance has no device with the number `device`."""
        _check_device(instance, self, self.device)

    def apply(self, instance: Instance, times: Times, random: np.random.Generator) -> None:
        """Multiply the durations of the device's operations by the factor."""
        times.duration[:, _devices_of(instance) == self.device] *= self.factor


@dataclass(frozen=True, slots=True)
class Slowdown:
    """How a slow message differs from a planned one: it takes `factor` times as long, and `ticks` more.

    The factor is above 0 and at most 1000, and the ticks are from 0 to 10^12.
    """

    factor: float = 1.0
    ticks: float = 0.0

    def __post_init__(self) -> None:
        check_number("factor", self.factor, 0, _MOST_SLOWNESS, above=True)
        check_number("ticks", self.ticks, 0, _MOST_TICKS)

    def __str__(self) -> str:
        return f"+{self.ticks:g}" if self.ticks else f"{self.factor:g}"


def slowed_messages(instance: Instance, model: SlowLink | Bursts) -> Bools:
    """Return, for each F and B, whether it waits for a message on the link of a model, shape (2, S, n).

    Raise an InputError, which names `model`, if a device of the link is not in the instance, no message goes
    from the first device to the second, or the messages take 0 ticks and the slowdown adds none.
    """
    key, sender, receiver = f"noise = {str(model)!r}", model.sender, model.receiver
    for device in (sender, receiver):
        _check_device(instance, model, device)
    devices = _devices_of(instance)
    found = np.zeros((2, *devices.shape), np.bool_)
    found[OpKind.F, 1:] = (devices[:-1] == sender) & (devices[1:] == receiver)
    found[OpKind.B, :-1] = (devices[1:] == sender) & (devices[:-1] == receiver)
    graph = arrays_of(instance)
    found[OpKind.B] &= (graph.node[OpKind.B :, graph.mb_class] >= 0).any(axis=0).T
    if not found.any():
        raise InputError(f"no message goes from device {sender} to device {receiver}", key=key)
    if instance.comm(sender, receiver) == 0 and not model.slowdown.ticks:
        raise InputError("messages of this link take 0 ticks; give the ticks to add, e.g. +100", key=key)
    return found


@dataclass(frozen=True, slots=True)
class SlowLink:
    """All messages from one device to another take longer, in every sample.

    PipeMorph studies such stragglers, which come from congestion, defects of network cards and switches, or
    an uneven topology: under a tight schedule even small delays of messages add idle time on all devices.
    CrossPipe studies links with large constant delays, between data centres.

    References
    ----------
    T. Wu et al., "Attack of the Bubbles: Straggler-Resilient Pipeline Parallelism for Large Model Training"
    (PipeMorph), NSDI 2026, arXiv:2504.19232. T. Chen et al., "CrossPipe: Towards Optimal Pipeline Schedules
    for Cross-Datacenter Training", USENIX ATC 2025, arXiv:2507.00217.
    """

    #: numbers of the device that sends and of the device that receives the messages
    sender: int
    receiver: int
    slowdown: Slowdown  #: how much longer the messages take

    def __str__(self) -> str:
        return f"slow-link:{self.sender}:{self.receiver}:{self.slowdown}"

    def check(self, instance: Instance) -> None:
        """Raise an InputError if the link has no messages, or if they take 0 ticks and no ticks are added."""
        slowed_messages(instance, self)

    def apply(self, instance: Instance, times: Times, random: np.random.Generator) -> None:
        """Lengthen the messages of the link."""
        slow = slowed_messages(instance, self)
        times.lag[slow] = times.lag[slow] * self.slowdown.factor + self.slowdown.ticks


_LONGEST = 10**6


@dataclass(frozen=True, slots=True)
class Bursts:
    """Messages from one device to another are slow in bursts, as when other traffic shares the network.

    In each sample a Markov chain with two states runs along the microbatches (Gilbert 1960): all messages of
    the link that belong to a microbatch in the slow state are slow. A burst ends after a microbatch with
    probability 1 / length. It begins after any other microbatch with the probability that makes `share` of
    all messages of the link slow on average. The first microbatch is slow with probability `share`.
    """

    #: numbers of the device that sends and of the device that receives the messages
    sender: int
    receiver: int
    share: float  #: share of slow messages, above 0 and below 1
    #: mean number of consecutive microbatches in a burst, from 1 to 10^6; at least share / (1 - share), so
    #: that at least one microbatch lies between two bursts on average
    length: float
    slowdown: Slowdown  #: how much longer a slow message takes

    def __post_init__(self) -> None:
        check_number("share", self.share, 0, 1, above=True)
        check_number("length", self.length, 1, _LONGEST)
        if self.share == 1.0:
            raise InputError(
                "must be below 1; a link that is always slow is a slow-link", key="share", value=1.0
            )
        if self._begins > 1.0:
            least = self.share / (1.0 - self.share)
            rule = f"must be at least {least:g} where {self.share:g} of the messages are slow"
            raise InputError(rule, key="length", value=self.length)

    def __str__(self) -> str:
        return f"bursts:{self.sender}:{self.receiver}:{self.share:g}:{self.length:g}:{self.slowdown}"

    @property
    def _begins(self) -> float:
        """The probability that a burst begins after a microbatch that is not slow."""
        return self.share / ((1.0 - self.share) * self.length)

    def check(self, instance: Instance) -> None:
        """Raise an InputError if the link has no messages, or if they take 0 ticks and no ticks are added."""
        slowed_messages(instance, self)

    def apply(self, instance: Instance, times: Times, random: np.random.Generator) -> None:
        """Lengthen the messages of the link that belong to microbatches within a burst."""
        on_link = slowed_messages(instance, self)
        slow = self._slow_microbatches(random, instance.microbatches)
        slow = on_link[..., None] & np.repeat(slow, instance.slice_count, axis=0)
        times.lag[slow] = times.lag[slow] * self.slowdown.factor + self.slowdown.ticks

    def _slow_microbatches(self, random: np.random.Generator, microbatches: int) -> Bools:
        """Return whether each microbatch is within a burst, in each sample, shape (n, K)."""
        drawn = random.random((microbatches, BLOCK))
        slow = drawn < self.share
        for m in range(1, microbatches):
            slow[m] = np.where(slow[m - 1], drawn[m] >= 1.0 / self.length, drawn[m] < self._begins)
        return slow


@dataclass(frozen=True, slots=True)
class Stall:
    """A device stands still for some time, as in a garbage collection, a page fault or a network timeout.

    The device stands still once in every sample, from a random moment that is uniform in its planned span, or
    in the planned makespan if that is the objective. An operation that runs at this moment goes on after the
    stall, and one that would start during the stall starts after it. A device that would wait during the
    whole stall loses nothing. The moment is drawn as a share of that interval, the same for every schedule.
    """

    device: int | None  #: number of the device; None for a random one in each sample
    ticks: float  #: length of the stall in ticks, above 0 and at most 10^12

    def __post_init__(self) -> None:
        check_number("ticks", self.ticks, 0, _MOST_TICKS, above=True)

    def __str__(self) -> str:
        return f"stall:{'any' if self.device is None else self.device}:{self.ticks:g}"

    def check(self, instance: Instance) -> None:
        """Raise an InputError if the instance has no device with the number `device`."""
        if self.device is not None:
            _check_device(instance, self, self.device)

    def apply(self, instance: Instance, times: Times, random: np.random.Generator) -> None:
        """Draw which device stands still in each sample, and when, and write this to `times`."""
        devices = random.integers(instance.devices, size=BLOCK)
        if self.device is not None:
            devices[:] = self.device
        samples = np.arange(BLOCK)
        times.moment[devices, samples] = random.random(BLOCK)
        times.stall[devices, samples] = self.ticks


FORMS = {
    "jitter": "jitter:VARIATION or jitter:FILE.csv",
    "slow-device": "slow-device:DEVICE:FACTOR",
    "slow-link": "slow-link:FROM:TO:FACTOR or slow-link:FROM:TO:+TICKS",
    "bursts": "bursts:FROM:TO:SHARE:LENGTH:FACTOR or bursts:FROM:TO:SHARE:LENGTH:+TICKS",
    "stall": "stall:DEVICE:TICKS or stall:any:TICKS",
}
"""How commands write each model: its name and numbers, with colons between them."""


def _slowdown(text: str) -> Slowdown:
    return Slowdown(ticks=float(text[1:])) if text.startswith("+") else Slowdown(float(text))


_MAKERS: dict[str, Callable[..., NoiseModel]] = {
    "jitter": lambda text: load_spread(text) if text.endswith(".csv") else Jitter(float(text)),
    "slow-device": lambda device, factor: SlowDevice(int(device), float(factor)),
    "slow-link": lambda a, b, slowdown: SlowLink(int(a), int(b), _slowdown(slowdown)),
    "bursts": lambda a, b, share, length, slowdown: Bursts(
        int(a), int(b), float(share), float(length), _slowdown(slowdown)
    ),
    "stall": lambda device, ticks: Stall(None if device == "any" else int(device), float(ticks)),
}


def parse_noise(text: str) -> NoiseModel:
    """Return the model of noise that a text such as ``jitter:0.1`` or ``slow-device:3:1.2`` stands for.

    Raises
    ------
    InputError
        If no model has this name, if a number is missing, malformed or out of range, or if a file of measured
        numbers cannot be read; the message says what is wrong or shows the right form.
    """
    name, *numbers = text.split(":")
    if name not in FORMS:
        raise InputError(f"must be one of: {'; '.join(FORMS.values())}", key="noise", value=text)
    try:
        return _MAKERS[name](*numbers)
    except InputError as error:
        if error.source:
            raise
        rule = f"{error.key} {error.rule}" if error.key else error.rule
        raise InputError(rule, key="noise", value=text) from None
    except (ValueError, TypeError):  # a malformed number, or too few or too many
        raise InputError(f"must be {FORMS[name]}", key="noise", value=text) from None


def parse_noises(texts: Sequence[str]) -> tuple[NoiseModel, ...]:
    """Return the models of noise that several texts stand for, in the same sequence.

    Raises
    ------
    InputError
        As in `parse_noise`; also if two texts are stalls, because a device has one stall per sample.
    """
    models = tuple(parse_noise(text) for text in texts)
    stalls = [str(model) for model in models if isinstance(model, Stall)]
    if len(stalls) > 1:
        raise InputError("must be the only stall", key="noise", value=stalls[1])
    return models


_COLUMNS = ("stage", "kind", "variation")
_KINDS = ("F", "B", "W")


def load_spread(path: str) -> Jitter:
    """Return a `Jitter` with the coefficients of variation of a file, one for each stage and kind.

    The file is a CSV table with the columns ``stage``, ``kind`` (F, B or W) and ``variation``, the standard
    deviation of the measured times over their mean; each stage and kind has one line.

    Raises
    ------
    InputError
        If the file cannot be read, lacks a column or a line, has a line twice, or has a number out of range.
    """
    with about_file(path):
        found = _read_spread(read_text(path))
        stages = 1 + max((stage for stage, _ in found), default=-1)
        lacking = [(s, k) for s in range(stages) for k in _KINDS if (s, k) not in found]
        if not found or lacking:
            stage, kind = (lacking or [(0, "F")])[0]
            raise InputError(f"has no line for stage {stage}, kind {kind}")
        return Jitter(tuple(tuple(found[s, k] for s in range(stages)) for k in _KINDS), path)


def _read_spread(text: str) -> dict[tuple[int, str], float]:
    rows = [(number, row) for number, row in csv_rows(text) if row]
    if not rows or tuple(rows[0][1]) != _COLUMNS:
        raise InputError(f"the first line must be {','.join(_COLUMNS)}")
    found: dict[tuple[int, str], float] = {}
    for number, row in rows[1:]:
        key = f"line {number}"
        try:
            stage, kind, variation = int(row[0]), row[1], float(row[2])
        except (IndexError, ValueError):
            raise InputError("must be a stage, a kind and a number", key=key) from None
        if kind not in _KINDS or not 0 <= stage < 10**6:
            rule = "must have a stage from 0 on and one of the kinds F, B, W"
            raise InputError(rule, key=key, value=f"{stage},{kind}")
        if (stage, kind) in found:
            raise InputError("is the second line of this stage and kind", key=key, value=f"{stage},{kind}")
        found[stage, kind] = variation
    return found
