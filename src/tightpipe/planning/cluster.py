"""A cluster: the number of its devices, the memory of each, and how long messages between them take."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from ..base.errors import per_item

Matrix = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Network:
    """Communication as latency and bandwidth, with faster links inside the nodes where there are nodes.

    Parameters
    ----------
    latency
        Ticks that each message takes in addition to the time of its bytes.
    bandwidth
        Bytes per tick, above 0.
    node_size
        Consecutive devices that form a node; None if all links are equal.
    node_latency, node_bandwidth
        Latency and bandwidth between two devices of one node; used only with `node_size`.
    """

    latency: Fraction
    bandwidth: Fraction
    node_size: int | None = None
    node_latency: Fraction = Fraction(0)
    node_bandwidth: Fraction = Fraction(1)

    def ticks(self, sender: int, receiver: int, size: int) -> int:
        """Return the time of a message of `size` bytes, rounded up to whole ticks."""
        near = self.node_size is not None and sender // self.node_size == receiver // self.node_size
        latency = self.node_latency if near else self.latency
        return -(-(latency + size / (self.node_bandwidth if near else self.bandwidth)) // 1)


@dataclass(frozen=True, slots=True)
class Gradients:
    """What pipelines that work side by side do with the gradients of the parameters that each of them has.

    Parameters
    ----------
    pipelines
        Number of pipelines.
    bandwidth, latency
        Bytes per tick between the pipelines, above 0, and ticks that an exchange takes in addition.
    reduced
        Bytes of the gradient of a parameter.
    gathered
        Bytes of a parameter that are gathered before a step begins; each pipeline has then updated its share
        of the parameters only. 0 if each updates all of them.
    optimizer
        Ticks to update a parameter.
    """

    pipelines: int
    bandwidth: Fraction = Fraction(1)
    latency: Fraction = Fraction(0)
    reduced: Fraction = Fraction(0)
    gathered: Fraction = Fraction(0)
    optimizer: Fraction = Fraction(0)

    @property
    def reduce_rate(self) -> Fraction:
        """Ticks to reduce the gradient of one parameter.

        Of N bytes, each of d pipelines sends and receives N (d - 1) / d until each has the sum of a share,
        and as many again until each has all sums.
        """
        return (1 if self.gathered else 2) * self.reduced * self._others / self.bandwidth

    @property
    def gather_rate(self) -> Fraction:
        """Ticks to gather one parameter."""
        return self.gathered * self._others / self.bandwidth

    @property
    def optimizer_rate(self) -> Fraction:
        """Ticks that a device of a pipeline takes in the optimizer for each of its parameters."""
        return self.optimizer / (self.pipelines if self.gathered else 1)

    @property
    def _others(self) -> Fraction:
        return Fraction(self.pipelines - 1, self.pipelines)

    def reduce_ticks(self, parameters: int) -> int:
        """Return the time to reduce the gradients of so many parameters, rounded up to whole ticks."""
        return self._exchange(parameters * self.reduce_rate)

    def gather_ticks(self, parameters: int) -> int:
        """Return the time to gather so many parameters, rounded up to whole ticks."""
        return self._exchange(parameters * self.gather_rate)

    def optimizer_ticks(self, parameters: int) -> int:
        """Return the time of the optimizer of a device with so many parameters, rounded up."""
        return -(-parameters * self.optimizer_rate // 1)

    def _exchange(self, ticks: Fraction) -> int:
        return -(-(self.latency + ticks) // 1) if ticks else 0


@dataclass(frozen=True, slots=True)
class Cluster:
    """The devices of one pipeline.

    Parameters
    ----------
    devices
        The numbers of devices to choose from, each at least 1, ascending.
    memory
        Bytes of each device, one number for all of them or one per device (then `devices` has one entry);
        None where memory does not matter.
    reserve
        Bytes of each device that a plan may not use, for the framework and for fragmentation.
    bytes_per_parameter
        Static state (weights, gradients, optimizer) in bytes per parameter, on each device that holds the
        parameter. Of state that data-parallel pipelines share, only the device's own part counts.
    comm
        Ticks of a message between two devices: one number, a matrix with one row per sending device, or a
        `Network`.
    gradients
        What becomes of gradients at the end of a step; None if that takes no time.
    """

    devices: tuple[int, ...]
    memory: int | tuple[int, ...] | None = None
    reserve: int = 0
    bytes_per_parameter: Fraction = Fraction(0)
    comm: int | Matrix | Network = 0
    gradients: Gradients | None = None

    def memory_of(self, devices: int) -> tuple[int, ...] | None:
        """Return the memory of each of `devices` devices in bytes, or None where memory does not matter."""
        given = self.memory
        if given is None:
            return None
        return per_item(
            "cluster.memory", given if isinstance(given, int) else list(given), devices, "device", 1
        )

    def comm_ticks(self, sender: int, receiver: int, size: int) -> int:
        """Return the time of a message of `size` bytes from one device to another, in ticks."""
        if sender == receiver:
            return 0
        if isinstance(self.comm, Network):
            return self.comm.ticks(sender, receiver, size)
        return self.comm if isinstance(self.comm, int) else self.comm[sender][receiver]

    def static_bytes(self, parameters: int) -> int:
        """Return the bytes of static state of a number of parameters, rounded up."""
        return -(-parameters * self.bytes_per_parameter // 1)
