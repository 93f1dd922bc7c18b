"""The ends of V-Beat's devices where all share one frame, as in the makespan: packed by beam searches.

In the makespan the last device begins last, and the least cost leaves it hardly any time to idle after its
first B (`docs/theorem.md`). In V-Beat it idles after its last F, in each pair of B's. Here the cost is
*given*: it is the least one. All devices run like V-Beat until some beats before its last ones. From there on
each device is packed on its own, from the last to the first: the device below it has fixed when upper F's and
lower B's arrive and by when upper B's must have left, and the cost says how long the device may idle. Among
what is possible, a beam search prefers upper B's that are late and other moves that are early, in proportion
to the time that this leaves to the devices above.

How much of that time a device should leave depends on the times in ways that no formula here says. So several
`Style`s are tried. Most fail early, on a device that cannot keep within its times.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tightpipe.kernels.arrays import Floats, Ints
from tightpipe.params.budget import Budget

from .v_tails_kernel import LOWER_B, LOWER_F, UPPER_B, UPPER_F, WEIGHT, Tail, pack

if TYPE_CHECKING:
    from .v_beat import Times

_FAR = 2**60
_WORK = 16000  # tries times devices squared
_EARLIEST = 3


class Held(NamedTuple):
    """Memory that a microbatch takes on a stage until its B and from then until its W, and the limit."""

    forward: int
    pending: int
    limit: int


class Style(NamedTuple):
    """What the beam searches of all devices prefer."""

    early: int  #: pairs of beats before V-Beat's last ones that are packed as well
    room: float  #: share of the time that an upper F and its B can wait above, which the F may use up
    late: float  #: share of the time to spare on the longest path, which the last device may use up
    ease: float  #: beats by which any move may be away from where it should be
    thrift: float  #: what idle ticks count
    upper_b: float  #: what an upper B that is too early counts, where a late upper F counts 2
    lower_b: float  #: what a lower B that is too late counts


_SHARES = ((0.3, 0.5), (0.2, 0.4, 0.6, 0.8, 0.95), (0.05, 0.5), (1.0, 3.0), (0.5, 0.5, 1.0), (0.3, 1.0))
"""The numbers of a style but its first one, out of which it is drawn."""


def styles(seed: int) -> Iterator[Style]:
    """Yield random styles without end."""
    rng = random.Random(seed)
    while True:
        yield Style(rng.choice((0, 1, _EARLIEST)), *(rng.choice(values) for values in _SHARES))


class DeviceEnd(NamedTuple):
    """What a device runs after its F's and its first beats."""

    beats: int  #: number of beats before
    kinds: list[int]  #: kinds of the moves after them, as `v_tails_kernel` numbers them


def has_tails(p: int, n: int, times: Times) -> bool:
    """Return whether ends are worth packing.

    The beats of V-Beat have to be in time, and W's so long that they can fill the end of the last device. If
    they are shorter, other heuristics meet the bound of two times more often.
    """
    f, b, w, c = times.forward, times.backward, times.weight, times.comm
    in_beats = f <= b + 2 * c and c <= f and 2 * c <= w and 2 * (b + c) <= times.beat
    return p > 1 and n >= 2 * p and in_beats and (p - 1) * (f + 3 * c) <= (2 * p - 1) * w


def long_weights_fit(p: int, times: Times) -> bool:
    """Return whether a W after each pair of B's fills the end of the last device, and all W's end in time.

    Together with conditions on F's these are those of the sixth theorem in `docs/theorem.md`.
    """
    f, b, w, c = times.forward, times.backward, times.weight, times.comm
    in_pairs = f + 2 * c <= b + w and (p - 1) * (b + c) <= p * w
    return w > 0 and in_pairs and b + c <= weights_between(times) * w


def weights_between(times: Times) -> int:
    """Return how many W's fit between two of the last lower B's, if a W runs after each pair of B's."""
    return 1 + max(0, 2 * times.backward - times.forward) // times.weight


def least_makespan(p: int, n: int, times: Times) -> int:
    """Return the bound, in ticks, of the fifth theorem of `docs/theorem.md` for split backwards.

    W's hold a whole activation there; if they hold less, the least cost may be lower.
    """
    f, b, w, c = times.forward, times.backward, times.weight, times.comm
    until, after = (p - 1) * (f + 2 * c - b), (p - 1) * (b + c) + w
    idle = min(max(0, until - (2 * p - y) * w) + max(0, after - y * w) for y in range(2 * p + 1))
    return 2 * n * times.beat + (p - 1) * max(f + c, b + 3 * c) + idle


def packed_tails(p: int, n: int, times: Times, held: Held, budget: Budget) -> list[DeviceEnd] | None:
    """Return the ends of all devices for the least cost; None if none are found.

    Without a deadline `_WORK` / max(8, p)**2 styles are tried, with one up to ten times as many. More
    microbatches only make for more beats, so the ends are those of few microbatches.
    """
    few = min(n, 2 * p + _EARLIEST)
    tries = _WORK * (1 if budget.endless else 10) // max(8, p) ** 2
    for _, style in zip(range(tries), styles(budget.seed), strict=False):
        ends = _Packing(p, few, times, held, least_makespan(p, few, times), style).ends(budget)
        if ends is not None:
            return [DeviceEnd(end.beats + 2 * (n - few), end.kinds) for end in ends]
        if budget.left <= 0:
            break
    return None


@dataclass(frozen=True, slots=True)
class _Packing:
    """One try to end all devices within a cost.

    Arrays of times have a row for each kind of moves but W's, and a column for each microbatch.
    """

    p: int
    n: int
    times: Times
    held: Held
    cost: int  #: the makespan not to exceed, in ticks
    style: Style

    def ends(self, budget: Budget) -> list[DeviceEnd] | None:
        """Return the ends of all devices; None if a device cannot end in time, or if time is up."""
        found: list[DeviceEnd] = []
        below = None
        for device in reversed(range(self.p)):
            beats, starts = self._beats(device), self._starts_in_beats(device)
            tail = self._last_tail(beats) if below is None else self._tail(device, beats, below)
            if tail is None or budget.left <= 0:
                return None
            kinds, ticks = pack(tail)
            if len(kinds) == 0:
                return None
            for kind in range(WEIGHT):
                starts[kind, tail.done[kind] :] = ticks[kinds == kind]
            found.insert(0, DeviceEnd(beats, kinds.tolist()))
            below = starts
        return found

    @property
    def _ticks(self) -> tuple[int, int, int, int]:
        times = self.times
        return times.forward, times.backward, times.weight, times.comm

    def _beats(self, device: int) -> int:
        """Return how many beats the device runs before its end."""
        early = min(self.style.early, self.n - 2 * self.p)
        return 2 * (self.n - self.p) - (self.p - 1 - device) - 1 - 2 * early

    def _done(self, device: int, beats: int) -> Ints:
        """Return how many moves of each kind a device has run before its end."""
        below = self.p - 1 - device
        odd = (beats - below) // 2  # beats with an upper F after those that have both stages' upper ones
        upper = below + 1 + (beats - 1 - below) // 2
        lower_f = 2 * self.p - 1 - device + beats - below - odd
        return np.array([lower_f, self.p + odd, upper, beats - upper, beats])

    def _first_beat(self, device: int) -> int:
        f, b, _, c = self._ticks
        return 2 * self.p * f + 2 * (self.p - 1) * c + device * (b + c)

    @property
    def _last_forward(self) -> int:
        """The end of the last F of the last device, if it runs like V-Beat."""
        return self._first_beat(self.p - 1) + 2 * (self.n - self.p) * self.times.beat

    def _starts_in_beats(self, device: int) -> Ints:
        """Return when V-Beat starts F's and B's in its beats; what is not in beats has wrong times."""
        below, twice = self.p - 1 - device, 2 * np.arange(self.n)
        # of F's the beat after it, as an F ends its beat
        lower_f = below + 1 + twice - 2 * (2 * self.p - 1 - device)
        upper_f = below + 2 + twice - 2 * self.p
        beats = np.array([lower_f, upper_f, twice - below, below + 1 + twice])
        starts = self._first_beat(device) + beats * self.times.beat
        starts[[LOWER_F, UPPER_F]] -= self.times.forward
        return starts

    def _upper_backwards(self, device: int) -> Ints:
        """Return when V-Beat starts upper B's in its beats and after its last F."""
        last = self._last_forward + (self.p - 1 - device) * (self.times.forward + self.times.comm)
        after = np.arange(self.n) - (self.n - 1 - device)
        return np.where(after < 0, self._starts_in_beats(device)[UPPER_B], last + after * self.times.hops)

    def _windows(self, device: int) -> tuple[Ints, Ints]:
        """Return earliest and latest starts on a device, whatever its neighbours do.

        Lower F's keep so near to V-Beat's beats that they are in time on the next device. Neither upper B's
        are earlier than neighbours can run them, nor lower B's too late for what is left after them.
        """
        (f, b, w, c), left, beat = self._ticks, self.n - np.arange(self.n), self.times.beat
        earliest, latest = np.zeros((4, self.n), np.int64), np.full((4, self.n), _FAR)
        lower_f, room = self._starts_in_beats(device)[LOWER_F], (beat + b - f) // 2
        earliest[LOWER_F], latest[LOWER_F] = lower_f - room, lower_f + room - 1
        earliest[UPPER_B] = self._upper_backwards(device) - device * beat * 9 // 10
        latest[UPPER_B] = self.cost - 2 * left * (b + w)
        latest[LOWER_B] = self.cost - left * (b + w) - device * (b + c)
        return earliest, latest

    def _last_tail(self, beats: int) -> Tail:
        """Return what is left for the last device, which should keep near to V-Beat.

        The longest path of the schedule goes through its last upper B, and has some time to spare. By the
        style's share of it this B runs later than in V-Beat, and those before it by less.
        """
        p, n, (_, b, w, c) = self.p, self.n, self._ticks
        earliest, latest = self._windows(p - 1)
        spare = self.cost - self._last_forward - (p - 1) * (self.times.hops + b + c) - 2 * b - w
        behind = np.maximum(0, np.arange(n) - (n - p))
        upper_b = self._upper_backwards(p - 1) + (self.style.late * spare * behind / (p - 1)).astype(np.int64)
        earliest[UPPER_B, -1] = upper_b[-1]
        wanted = self._starts_in_beats(p - 1)
        wanted[UPPER_B], wanted[LOWER_B, n - p :] = upper_b, upper_b[n - p :] + b
        weight = np.full((4, n), 1 / self.times.beat)
        weight[LOWER_F] = 0
        return self._made(p - 1, beats, earliest, latest, wanted, weight)

    def _tail(self, device: int, beats: int, below: Ints) -> Tail | None:
        """Return what is left for another device; None if an upper F arrives too late for its B.

        `below` has the starts on the next device.
        """
        (f, b, _, c), n, beat, hops = self._ticks, self.n, self.times.beat, self.times.hops
        earliest, latest = self._windows(device)
        earliest[LOWER_B], earliest[UPPER_F] = below[LOWER_B] + b + c, below[UPPER_F] + f + c
        latest[UPPER_B] = below[UPPER_B] - b - c
        # An upper F has to end so early that its B can be back from the devices above in time.
        in_time = self._upper_backwards(device) + np.where(np.arange(n) < n - 1, beat, 0)
        gap = np.minimum(latest[UPPER_B], in_time) - device * hops - earliest[UPPER_F] - f
        first = self._done(device, beats)[UPPER_F]
        if gap[first:].min() < 0:
            return None
        end = earliest[UPPER_F] + f + (self.style.room * gap).astype(np.int64)
        latest[UPPER_F, first:] = (end if device else latest[UPPER_B])[first:] - f
        earliest[UPPER_B, first:] = (end + device * hops)[first:]
        if device == 0:
            earliest[UPPER_B] = 0
        gap[:first] = 2 * beat
        wanted = np.where(np.arange(4)[:, None] == UPPER_B, latest, earliest)
        ease, slack = self.style.ease * beat, np.maximum(0, latest[LOWER_B] - earliest[LOWER_B])
        weight = np.zeros((4, n))
        weight[UPPER_B] = self.style.upper_b / (gap / (2 * device + 1) + ease)
        weight[UPPER_F] = 2 / (gap / (2 * device + 1) + ease)
        weight[LOWER_B] = self.style.lower_b / (slack / (device + 1) + ease)
        return self._made(device, beats, earliest, latest, wanted, weight)

    def _made(
        self, device: int, beats: int, earliest: Ints, latest: Ints, wanted: Ints, weight: Floats
    ) -> Tail:
        """Return the `Tail` with times that allow for one move of a kind after the other."""
        n, (f, b, w, _), done = self.n, self._ticks, self._done(device, beats)
        ticks, number = np.array([f, f, b, b, w]), np.arange(n)
        for kind in range(WEIGHT):
            behind, tail = number * ticks[kind], slice(done[kind], None)
            latest[kind] = np.minimum.accumulate((latest[kind] - behind)[::-1])[::-1] + behind
            earliest[kind, tail] = np.maximum.accumulate((earliest[kind] - behind)[tail]) + behind[tail]
        lower, upper = earliest[LOWER_B] - number * (b + w), earliest[UPPER_F] - number * (f + b + w)
        demand = np.full((2, n + 1), -_FAR)
        demand[:, :-1] = np.maximum.accumulate(np.array([lower, upper])[:, ::-1], axis=1)[:, ::-1] - n * w
        begin = self._first_beat(device) + beats * self.times.beat
        idle = self.cost - begin - 2 * n * self.times.beat + int(done @ ticks)
        held, is_last = np.array(self.held), device == self.p - 1
        thrift = self.style.thrift
        return Tail(done, ticks, earliest, latest, wanted, weight, demand, held, begin, idle, thrift, is_last)
