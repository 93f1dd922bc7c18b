"""A cluster: its devices, their memory and the time of messages, and the tables of files that describe it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from ..base.errors import InputError, about_entry, check_flag, check_int, is_list, per_item
from ..base.files import check_keys
from ..model.expand import expand_comm
from ..model.instance import MOST_DEVICES
from .sharding import NOT_SHARED, Sharding, state_from_table, table_of_state
from .units import check_ticks, decimal, exact, exact_positive, parse_bytes

Matrix = tuple[tuple[int, ...], ...]
Speed = tuple[Fraction, Fraction, Fraction]
FULL_SPEED: Speed = (Fraction(1), Fraction(1), Fraction(1))


@dataclass(frozen=True, slots=True)
class Network:
    """Communication as latency and bandwidth, with faster links inside the nodes where there are nodes."""

    latency: Fraction  #: ticks that each message takes in addition to the time of its bytes
    bandwidth: Fraction  #: bytes per tick, above 0
    node_size: int | None = None  #: consecutive devices that form a node; None if all links are equal
    #: latency and bandwidth between two devices of one node; used only with `node_size`
    node_latency: Fraction = Fraction(0)
    node_bandwidth: Fraction = Fraction(1)

    def ticks(self, sender: int, receiver: int, size: int) -> int:
        """Return the time of a message of `size` bytes, rounded up to whole ticks."""
        near = self.node_size is not None and sender // self.node_size == receiver // self.node_size
        latency = self.node_latency if near else self.latency
        return -(-(latency + size / (self.node_bandwidth if near else self.bandwidth)) // 1)


@dataclass(frozen=True, slots=True)
class Gradients:
    """What pipelines that work side by side do with the gradients of the parameters that each of them has."""

    pipelines: int  #: number of pipelines
    #: bytes per tick between the pipelines, above 0, and ticks that an exchange takes in addition
    bandwidth: Fraction = Fraction(1)
    latency: Fraction = Fraction(0)
    reduced: Fraction = Fraction(0)  #: bytes of the gradient of a parameter
    #: bytes of a parameter that are gathered before a step begins; each pipeline has then updated its share
    #: of the parameters only. 0 if each updates all of them
    gathered: Fraction = Fraction(0)
    optimizer: Fraction = Fraction(0)  #: ticks to update a parameter

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
class Host:
    """The memory of a machine, to which activations of its devices may leave until their backwards."""

    out: Fraction  #: bytes per tick of copies out over the link of the machine, above 0
    back: Fraction  #: those of copies back
    shared: int = 1  #: number of devices that share the link; each has an equal part of it
    duplex: bool = True  #: whether a device copies out and back at the same time
    memory: int | None = None  #: bytes for what has left one device; None for no limit

    def ticks(self, size: int) -> tuple[int, int]:
        """Return the time of a copy of `size` bytes out and of one back, rounded up to whole ticks."""
        return -(-size * self.shared // self.out), -(-size * self.shared // self.back)

    @property
    def ticks_per_byte(self) -> Fraction:
        """The time that a byte takes out and back."""
        return self.shared / self.out + self.shared / self.back

    @property
    def rate(self) -> Fraction:
        """The most bytes per tick that a device can copy out and later back, on and on."""
        return min(self.out, self.back) / self.shared if self.duplex else 1 / self.ticks_per_byte


@dataclass(frozen=True, slots=True)
class Cluster:
    """The devices of one pipeline."""

    devices: tuple[int, ...]  #: the numbers of devices to choose from, each at least 1, ascending
    #: bytes of each device, one number for all of them or one per device (then `devices` has one entry); None
    #: where memory does not matter
    memory: int | tuple[int, ...] | None = None
    reserve: int = 0  #: bytes of each device that a plan may not use, for the framework and fragmentation
    #: static state (weights, gradients, optimizer) in bytes per parameter, on each device that holds the
    #: parameter. Of state that data-parallel pipelines share, only the device's own part counts here.
    bytes_per_parameter: Fraction = Fraction(0)
    #: ticks of a message: one number, a matrix with one row per sending device, or a `Network`
    comm: int | Matrix | Network = 0
    gradients: Gradients | None = None  #: what becomes of gradients in the end; None if that takes no time
    #: the speed of each device in F, B and W, as shares of that at which the ticks of layers hold, above 0
    #: and at most 1; () if all devices have that speed. Else `devices` has one entry.
    speeds: tuple[Speed, ...] = ()
    host: Host | None = None  #: where activations may leave to; None if they stay
    sharding: Sharding = NOT_SHARED  #: what a device holds whole, for a while, of state that pipelines share

    def speed_of(self, device: int) -> Speed:
        """Return the speed of a device in F, B and W."""
        return self.speeds[device] if self.speeds else FULL_SPEED

    def memory_of(self, devices: int) -> tuple[int, ...] | None:
        """Return the memory of each of `devices` devices in bytes, or None where memory does not matter."""
        given = self.memory
        if given is None:
            return None
        each = given if isinstance(given, int) else list(given)
        return per_item("cluster.memory", each, devices, "device", 1)

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


_OF_CLUSTER = ("memory", "reserve", "bytes_per_parameter", "sharding", "resident", "comm", "speeds")
_TIMES = ("forward", "backward", "weight")
_NETWORK = ("latency", "bandwidth")
_NODE = ("node_size", "node_latency", "node_bandwidth")
_REDUCE = ("reduce_bandwidth", "reduce_latency", "reduce_bytes", "gather_bytes")
_HOST = ("host_bandwidth", "host_shared", "host_duplex", "host_memory")


def cluster_from_table(table: Any, data_parallel: int) -> Cluster:
    """Return the cluster that a table describes, as one of `data_parallel` pipelines uses it."""
    known = (*_OF_CLUSTER, *_NETWORK, *_NODE, *_REDUCE, "optimizer", *_HOST, "gpus")
    check_keys(table, ("devices",), known, "cluster")
    devices = choices("cluster.devices", table["devices"], MOST_DEVICES)
    memory = _memory(table.get("memory"), devices)
    reserve = parse_bytes("cluster.reserve", table.get("reserve", 0))
    least = min(memory) if isinstance(memory, tuple) else memory
    if least is not None and reserve >= least:
        rule = f"must be less than the memory of each device, {least} bytes"
        raise InputError(rule, key="cluster.reserve", value=table["reserve"])
    state = state_from_table(table, data_parallel)
    exchanges = _comm(table, devices), _gradients(table, data_parallel, state.exchanged)
    speeds = _speeds(table.get("speeds", []), devices)
    return Cluster(devices, memory, reserve, state.held, *exchanges, speeds, _host(table), state.sharding)


def choices(key: str, value: Any, high: int) -> tuple[int, ...]:
    """Return the ascending integers from 1 to `high` that a number or a list gives."""
    if not is_list(value):
        return (check_int(key, value, 1, high),)
    found = [check_int(f"{key}[{i}]", entry, 1, high) for i, entry in enumerate(value)]
    if not found or len(set(found)) < len(found):
        rule = "must be an integer, or a list of at least one, each of them once"
        raise InputError(rule, key=key, value=value)
    return tuple(sorted(found))


def _memory(value: Any, devices: tuple[int, ...]) -> int | tuple[int, ...] | None:
    key = "cluster.memory"
    if value is None:
        return None
    if not is_list(value):
        return parse_bytes(key, value, 1)
    _check_one_number(key, value, devices)
    if len(value) != devices[0]:
        rule = f"has {len(value)} entries, must have one per device: {devices[0]}"
        raise InputError(rule, key=key, value=value)
    return tuple(parse_bytes(f"{key}[{i}]", entry, 1) for i, entry in enumerate(value))


def _speeds(value: Any, devices: tuple[int, ...]) -> tuple[Speed, ...]:
    key = "cluster.speeds"
    if is_list(value) and not value:
        return ()
    _check_one_number(key, value, devices)
    if not is_list(value) or len(value) != devices[0]:
        rule = f"must be a list of {devices[0]} numbers or tables of {', '.join(_TIMES)}, one per device"
        raise InputError(rule, key=key, value=value)
    return tuple(_speed(f"{key}[{i}]", entry) for i, entry in enumerate(value))


def _speed(key: str, value: Any) -> Speed:
    if isinstance(value, dict):
        check_keys(value, (), _TIMES, key)
    given = value if isinstance(value, dict) else dict.fromkeys(_TIMES, value)
    found = list[Fraction]()
    for name in _TIMES:
        where = f"{key}.{name}" if isinstance(value, dict) else key
        found.append(exact_positive(where, given.get(name, 1)))
        if found[-1] > 1:
            rule = "must be at most 1: a share of the speed at which the ticks of layers hold"
            raise InputError(rule, key=where, value=given[name])
    forward, backward, weight = found
    return forward, backward, weight


def _check_one_number(key: str, value: Any, devices: tuple[int, ...]) -> None:
    if len(devices) > 1:
        rule = f"entries for each device need one number of devices, not {list(devices)}"
        raise InputError(rule, key=key, value=value)


def _comm(table: dict[str, Any], devices: tuple[int, ...]) -> int | Matrix | Network:
    given = [key for key in (*_NETWORK, *_NODE) if key in table]
    if "comm" not in table:
        return _network(table) if given else 0
    if given:
        rule = f"contradicts cluster.{given[0]}: give comm, or latency and bandwidth"
        raise InputError(rule, key="cluster.comm", value=table["comm"])
    if not is_list(table["comm"]):
        return check_ticks("cluster.comm", table["comm"])
    return _matrix(table["comm"], devices)


def _matrix(rows: Any, devices: tuple[int, ...]) -> Matrix:
    _check_one_number("cluster.comm", rows, devices)
    for i, row in enumerate(rows):
        for j, ticks in enumerate(row if is_list(row) else ()):
            check_ticks(f"cluster.comm[{i}][{j}]", ticks)
    with about_entry("cluster"):
        return expand_comm(rows, devices[0])


def _network(table: dict[str, Any]) -> Network:
    _check_beside(table, "bandwidth", (*_NETWORK, *_NODE))
    latency = exact("cluster.latency", table.get("latency", 0))
    bandwidth = exact_positive("cluster.bandwidth", table["bandwidth"])
    if not any(key in table for key in _NODE):
        return Network(latency, bandwidth)
    _check_beside(table, "node_size", _NODE)
    _check_beside(table, "node_bandwidth", _NODE)
    size = check_int("cluster.node_size", table["node_size"], 1)
    near = exact("cluster.node_latency", table.get("node_latency", 0))
    fast = exact_positive("cluster.node_bandwidth", table["node_bandwidth"])
    return Network(latency, bandwidth, size, near, fast)


def _gradients(table: dict[str, Any], data_parallel: int, exchanged: Fraction) -> Gradients | None:
    """Return what the pipelines do with gradients; None if no key says so.

    `exchanged` has the bytes of a parameter that are gathered unless the table says it; 0 if none are.
    """
    found = Gradients(data_parallel, optimizer=exact("cluster.optimizer", table.get("optimizer", 0)))
    if not any(key in table for key in _REDUCE):
        if found.optimizer and exchanged:  # it is shared, as the exchanges are that would say so
            _check_beside(table, "reduce_bandwidth", ("optimizer",))
        return found if found.optimizer else None
    _check_beside(table, "reduce_bandwidth", _REDUCE)
    return replace(
        found,
        bandwidth=exact_positive("cluster.reduce_bandwidth", table["reduce_bandwidth"]),
        latency=exact("cluster.reduce_latency", table.get("reduce_latency", 0)),
        reduced=exact("cluster.reduce_bytes", table.get("reduce_bytes", 4)),
        gathered=exact("cluster.gather_bytes", table["gather_bytes"])
        if "gather_bytes" in table
        else exchanged,
    )


def _host(table: dict[str, Any]) -> Host | None:
    """Return where activations may leave to; None if no key says so."""
    if not any(key in table for key in _HOST):
        return None
    _check_beside(table, "host_bandwidth", _HOST)
    key, given, duplex = "cluster.host_bandwidth", table["host_bandwidth"], table.get("host_duplex", True)
    if isinstance(given, dict):
        check_keys(given, ("out", "back"), (), key)
        out, back = (exact_positive(f"{key}.{way}", given[way]) for way in ("out", "back"))
    else:
        out = back = exact_positive(key, given)
    check_flag("cluster.host_duplex", duplex)
    shared = check_int("cluster.host_shared", table.get("host_shared", 1), 1)
    memory = table.get("host_memory")
    size = None if memory is None else parse_bytes("cluster.host_memory", memory, 1)
    return Host(out, back, shared, duplex, size)


def _check_beside(table: dict[str, Any], needed: str, keys: tuple[str, ...]) -> None:
    """Raise an InputError if the table lacks the key `needed` beside the first of `keys` that it has."""
    given = next(key for key in keys if key in table)
    if needed not in table:
        raise InputError(f"needs cluster.{needed} beside it", key=f"cluster.{given}", value=table[given])


def table_of_cluster(cluster: Cluster, data_parallel: int) -> dict[str, Any]:
    """Return the table that `cluster_from_table` reads as this cluster, one of `data_parallel` pipelines."""
    devices, memory = cluster.devices, cluster.memory
    table: dict[str, Any] = {"devices": devices[0] if len(devices) == 1 else list(devices)}
    if memory is not None:
        table["memory"] = memory if isinstance(memory, int) else list(memory)
    if cluster.speeds:
        table["speeds"] = [dict(zip(_TIMES, map(decimal, each), strict=True)) for each in cluster.speeds]
    table["reserve"] = cluster.reserve
    table |= table_of_state(cluster.bytes_per_parameter * data_parallel, cluster.sharding)
    table |= _comm_entries(cluster.comm) | _gradient_entries(cluster.gradients)
    return table | ({} if cluster.host is None else _host_entries(cluster.host))


def _comm_entries(comm: int | Matrix | Network) -> dict[str, Any]:
    if isinstance(comm, Network):
        keys = _NETWORK if comm.node_size is None else (*_NETWORK, *_NODE)
        return {key: decimal(Fraction(getattr(comm, key))) for key in keys}
    return {"comm": comm if isinstance(comm, int) else [list(row) for row in comm]}


def _gradient_entries(gradients: Gradients | None) -> dict[str, Any]:
    if gradients is None:
        return {}
    parts = (gradients.bandwidth, gradients.latency, gradients.reduced, gradients.gathered)
    entries = {key: decimal(part) for key, part in zip(_REDUCE, parts, strict=True)}
    unsaid = replace(gradients, optimizer=Fraction(0)) == Gradients(gradients.pipelines)
    return ({} if unsaid else entries) | {"optimizer": decimal(gradients.optimizer)}


def _host_entries(host: Host) -> dict[str, Any]:
    out, back = decimal(host.out), decimal(host.back)
    bandwidth = out if out == back else {"out": out, "back": back}
    entries = {"host_bandwidth": bandwidth, "host_shared": host.shared, "host_duplex": host.duplex}
    return entries if host.memory is None else entries | {"host_memory": host.memory}
