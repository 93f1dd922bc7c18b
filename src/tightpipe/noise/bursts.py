"""A model of noise: a link is slow now and then, for several microbatches in a row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..core.errors import InputError
from ..core.instance import Instance
from ..kernels.arrays import Bools
from .slowness import Slowdown, slowed_messages
from .times import BLOCK, Times, check_number

_LONGEST = 1e6


@dataclass(frozen=True, slots=True)
class Bursts:
    """Messages from one device to another are slow in bursts, as when other traffic shares the network.

    In each sample a Markov chain with two states runs along the microbatches (Gilbert 1960): all messages of
    the link that belong to a microbatch in the slow state are slow. A burst ends after a microbatch with
    probability 1 / length. It begins after any other microbatch with the probability that makes `share` of
    all messages of the link slow on average. The first microbatch is slow with probability `share`. PipeMorph
    (arXiv:2504.19232) names network congestion as a common cause of slow messages.

    Parameters
    ----------
    sender, receiver
        Numbers of the device that sends and of the device that receives the messages.
    share
        Share of slow messages, above 0 and below 1.
    length
        Mean number of consecutive microbatches in a burst, from 1 to 10^6; at least share / (1 - share), so
        that at least one microbatch lies between two bursts on average.
    slowdown
        How much longer a slow message takes.
    """

    sender: int
    receiver: int
    share: float
    length: float
    slowdown: Slowdown

    def __post_init__(self) -> None:
        check_number("share", self.share, 0.0, 1.0, above=True)
        check_number("length", self.length, 1.0, _LONGEST)
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
        slowed_messages(instance, self, (self.sender, self.receiver), self.slowdown)

    def apply(self, instance: Instance, times: Times, random: np.random.Generator) -> None:
        """Lengthen the messages of the link that belong to microbatches within a burst."""
        on_link = slowed_messages(instance, self, (self.sender, self.receiver), self.slowdown)
        slow = on_link[..., None] & self._slow_microbatches(random, instance.microbatches)
        times.lag[slow] = times.lag[slow] * self.slowdown.factor + self.slowdown.ticks

    def _slow_microbatches(self, random: np.random.Generator, microbatches: int) -> Bools:
        """Return whether each microbatch is within a burst, in each sample, shape (n, K)."""
        drawn = random.random((microbatches, BLOCK))
        slow = drawn < self.share
        for m in range(1, microbatches):
            slow[m] = np.where(slow[m - 1], drawn[m] >= 1.0 / self.length, drawn[m] < self._begins)
        return slow
