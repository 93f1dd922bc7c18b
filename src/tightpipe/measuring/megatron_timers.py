"""The timers of Megatron-LM are read from its log: how long each rank computed and communicated.

Megatron prints them with ``--timing-log-level 2 --timing-log-option all``, as blocks of this form, in
milliseconds and averaged over the iterations since the last block::

    times across ranks (ms):
      forward-compute:
         rank  0: 812.40

Loggers and launchers may put anything before these lines, and mix them with those of other processes.

The times are sums over all microbatches. So they tell how large the bubble of a rank is, but not which
operation waited for which other.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from ..base.errors import InputError, about_file, check_int
from ..model.costs import Costs
from ..model.instance import Instance
from ..model.placement import Placement
from ..runtime.training_logs import Record, log_records, opened

MARK = "across ranks (ms):"
"""Text by which a log with timers is recognised."""

FORWARD, BACKWARD, STEP = "forward-compute", "backward-compute", "forward-backward"
_MESSAGES = ("forward-recv", "forward-send", "backward-recv", "backward-send")
_NEEDED = (STEP, FORWARD, BACKWARD)
_FIRST = re.compile(r"times across ranks \(ms\):$")
_FURTHER = re.compile(
    r"  (?P<name>\S+):$| {5}rank {1,9}(?P<rank>\d{1,9}): (?P<time>\d{1,12}\.\d{1,9})$", re.ASCII
)
_HOW = "record with --timing-log-level 2 --timing-log-option all"
_MICRO = 1000.0  # microseconds of a millisecond
Block = dict[str, dict[int, float]]


@dataclass(frozen=True, slots=True)
class DeviceTotals:
    """Times of one device in one iteration, in microseconds; each is the median over blocks and ranks.

    `step` is the time of all forwards and backwards with their waits; `messages` is the time of sends and
    receives, which includes waits too.
    """

    device: int
    step: float
    forward: float
    backward: float
    messages: float

    @property
    def busy(self) -> float:
        """Time in which the device computed, in microseconds."""
        return self.forward + self.backward

    @property
    def other(self) -> float:
        """Time of the step in which the device neither computed nor communicated, in microseconds."""
        return self.step - self.busy - self.messages

    def to_dict(self) -> dict[str, Any]:
        """Return the times as plain data for JSON."""
        return asdict(self) | {"busy": self.busy, "other": self.other}


@dataclass(frozen=True, slots=True)
class TimerTotals:
    """What the timers of a log say, with one entry for each device."""

    devices: tuple[DeviceTotals, ...]  #: the times of each device
    #: number of blocks of the log that count. The first is left out as warm-up if there are others, and so is
    #: the last one if the log ends within it.
    blocks: int

    @property
    def step(self) -> float:
        """Time of all forwards and backwards with their waits, on the slowest device, in microseconds."""
        return max(device.step for device in self.devices)

    @property
    def bubble_rate(self) -> float:
        """Time of a step less the largest computing time of a device, as a share of the step."""
        return 1 - max(device.busy for device in self.devices) / self.step

    def instance(self, microbatches: int) -> Instance:
        """Return the instance with the mean times of a microbatch, and one stage on each device.

        The time of a backward is divided equally between B and W, because Megatron measures their sum.
        In the instance messages take no time, because the timers of messages include waits. There is no
        memory limit. One tick is a microsecond.

        Raise an InputError if `microbatches` is less than 1.
        """
        check_int("microbatches", microbatches, 1)
        forward = [max(1, round(device.forward / microbatches)) for device in self.devices]
        half = [max(1, round(device.backward / microbatches / 2)) for device in self.devices]
        return Instance(Placement("linear", len(self.devices)), microbatches, Costs(forward, half, half))

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as plain data for JSON; times are in microseconds."""
        figures = {"step": self.step, "bubble_rate": self.bubble_rate, "blocks": self.blocks}
        return {**figures, "devices": [device.to_dict() for device in self.devices]}


def read_timers(path: str | Path, devices: int | None = None) -> TimerTotals:
    """Return what the timers in a log of Megatron-LM say.

    Parameters
    ----------
    path
        The log; other lines do not matter, and neither does what stands before the lines of the timers.
    devices
        Number of devices of the pipeline. Each device then has equally many consecutive ranks, as Megatron
        numbers them, and its times are medians over these ranks. None takes every rank for a device.

    Raises
    ------
    InputError
        If the log has no block of timers, if a block lacks one of the timers needed, or if `devices` does not
        divide the number of ranks.
    """
    with about_file(path), opened(path) as log:
        return _totals(_blocks(log.read()), devices)


def _blocks(text: str) -> list[Block]:
    """Return the blocks that count; a last one at which the log is cut off does not if there are others."""
    records = log_records(text, _FIRST, _FURTHER, _is_whole)
    blocks = [_block(record) for record in records]
    if not blocks:
        raise InputError(f"has no times of each rank; {_HOW}")
    if len(blocks) > 1 and _sizes(blocks[-1]) != _sizes(blocks[-2]):
        blocks.pop()
    return blocks[1:] or blocks


def _sizes(block: Block) -> list[int]:
    """Return of how many ranks a block has each of the needed timers."""
    return [len(block.get(name, {})) for name in _NEEDED]


def _entries(record: Record) -> Iterator[tuple[str, int, float]]:
    """Yield timer, rank and microseconds of each time of a record."""
    name = ""
    for line in record[1:]:
        if line["name"]:
            name = line["name"]
        elif name:
            yield name, int(line["rank"]), float(line["time"]) * _MICRO


def _block(record: Record) -> Block:
    block: Block = defaultdict(dict)
    for name, rank, time in _entries(record):
        block[name][rank] = time
    return block


def _is_whole(record: Record, astray: Record) -> bool:
    """Return whether a record has the needed timers, of the same ranks, no time twice, and no time astray."""
    block = _block(record)
    ranks = [block[name].keys() for name in _NEEDED]
    once = sum(map(len, block.values())) == sum(1 for _ in _entries(record))
    same = len(ranks[0]) > 0 and ranks[0] == ranks[1] == ranks[2]
    return once and same and not any(line["rank"] for line in astray)


def _totals(blocks: Sequence[Block], devices: int | None) -> TimerTotals:
    for name in _NEEDED:
        if any(name not in block for block in blocks):
            raise InputError(f"this timer is missing; {_HOW}", key=name)
    ranks = sorted(blocks[0][STEP])
    count = len(ranks) if devices is None else check_int("devices", devices, 1)
    if len(ranks) % count:
        raise InputError(f"must divide the number of ranks, {len(ranks)}", key="devices", value=count)
    share = len(ranks) // count
    groups = [ranks[k * share : (k + 1) * share] for k in range(count)]
    totals = TimerTotals(tuple(_device(blocks, k, group) for k, group in enumerate(groups)), len(blocks))
    if totals.step <= 0:
        raise InputError("must be above 0", key=STEP, value=totals.step)
    return totals


def _device(blocks: Sequence[Block], device: int, ranks: Sequence[int]) -> DeviceTotals:
    def typical(names: Sequence[str]) -> float:
        return median(
            sum(block[name].get(rank, 0.0) for name in names if name in block)
            for block in blocks
            for rank in ranks
        )

    messages = sorted({name for block in blocks for name in block if name.startswith(_MESSAGES)})
    return DeviceTotals(device, typical([STEP]), typical([FORWARD]), typical([BACKWARD]), typical(messages))
