"""A placement says which device runs which stage.

It consists of routes. A route names the device of every stage, in the sequence of the forward pass. The
placement `bidirectional` has two routes, one for each direction in which microbatches travel; all other
placements have one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from ..base.errors import InputError, check_int, store_plain

Route = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """Assignment of stages to devices, with `chunks` stages of each route on each of the `devices` devices.

    Parameters
    ----------
    name
        One of `PLACEMENTS`.
    devices
        Number of devices, at least 1.
    chunks
        Number of stages of one route on each device; None takes the placement's usual number.

    Raises
    ------
    InputError
        If the name is unknown, or if `chunks` or `devices` is no integer or not possible in that placement.

    Notes
    -----
    With p devices and c chunks, each placement maps the stages 0, 1, ... to devices in its own way:

    - `linear`: Device 0 has the first c stages, device 1 the next c stages, and so on; c is usually 1.
    - `loop`: Stage s is on device s mod p; c is usually 2.
    - `v`: The stages go from device 0 to device p - 1 and back to device 0, so c is 2.
    - `wave`: The stages go there and back c / 2 times, for an even c, which is usually 4.
    - `bidirectional`: Each device has one stage of each route, so c is 1, and p is even. One route goes from
      device 0 to device p - 1, the other one from device p - 1 to device 0.

    References
    ----------
    `v`: Qi et al., arXiv:2405.15362. `loop`: Narayanan et al., arXiv:2104.04473 (interleaving).
    `wave`: Liu et al., arXiv:2308.15762 (Hanayo). `bidirectional`: DeepSeek-V3, arXiv:2412.19437.
    """

    name: str
    devices: int
    chunks: int | None = None

    def __post_init__(self) -> None:
        store_plain(self)
        rule = _RULES.get(self.name) if isinstance(self.name, str) else None
        if rule is None:
            raise InputError(f"must be one of {', '.join(_RULES)}", key="placement", value=self.name)
        if self.chunks is None:
            object.__setattr__(self, "chunks", rule.usual_chunks)
        check_int("devices", self.devices, 1)
        check_int("chunks", self.chunks)
        problem = rule.problem(self.devices, self.stages_per_device)
        if problem:
            raise InputError(problem, key="placement", value=self.name)

    @property
    def stages_per_device(self) -> int:
        """Number of stages of one route on one device."""
        assert self.chunks is not None
        return self.chunks

    @property
    def stages(self) -> int:
        """Number of stages of the model."""
        return self.devices * self.stages_per_device

    @property
    def routes(self) -> tuple[Route, ...]:
        """One tuple of length `stages` per direction: the device of each stage."""
        return _routes(self.name, self.devices, self.stages_per_device)

    @property
    def usual(self) -> bool:
        """Whether `chunks` is the number that the placement takes when none is given."""
        return self.chunks == _RULES[self.name].usual_chunks

    def stages_on(self, device: int) -> tuple[int, ...]:
        """Return the stages that `device` holds on any route, in ascending order."""
        return _stages_of_devices(self)[device]


@dataclass(frozen=True, slots=True)
class _Rule:
    """How one kind of placement maps stages to devices, and which numbers of chunks and devices it allows."""

    usual_chunks: int
    routes: Callable[[int, int], tuple[Route, ...]]
    chunks_allowed: Callable[[int], bool]
    chunks_text: str
    even_devices: bool = False

    def problem(self, devices: int, chunks: int) -> str:
        if not self.chunks_allowed(chunks):
            return f"takes {self.chunks_text} per device, not {chunks}"
        if self.even_devices and devices % 2:
            return f"needs an even number of devices, not {devices}"
        return ""


def _linear(p: int, chunks: int) -> tuple[Route, ...]:
    return (tuple(s // chunks for s in range(p * chunks)),)


def _loop(p: int, chunks: int) -> tuple[Route, ...]:
    return (tuple(s % p for s in range(p * chunks)),)


def _wave(p: int, chunks: int) -> tuple[Route, ...]:
    there_and_back = (*range(p), *reversed(range(p)))
    return (there_and_back * (chunks // 2),)


def _bidirectional(p: int, chunks: int) -> tuple[Route, ...]:
    return (tuple(range(p)), tuple(reversed(range(p))))


_RULES: dict[str, _Rule] = {
    "linear": _Rule(1, _linear, lambda c: c >= 1, "1 stage or more"),
    "v": _Rule(2, _wave, lambda c: c == 2, "2 stages"),
    "loop": _Rule(2, _loop, lambda c: c >= 1, "1 stage or more"),
    "wave": _Rule(4, _wave, lambda c: c >= 2 and c % 2 == 0, "an even number of stages"),
    "bidirectional": _Rule(
        1, _bidirectional, lambda c: c == 1, "1 stage of each direction", even_devices=True
    ),
}


@lru_cache(maxsize=256)
def _routes(name: str, devices: int, chunks: int) -> tuple[Route, ...]:
    return _RULES[name].routes(devices, chunks)


@lru_cache(maxsize=256)
def _stages_of_devices(placement: Placement) -> tuple[tuple[int, ...], ...]:
    """Return for each device the stages that it holds on any route, in ascending order."""
    held: list[set[int]] = [set() for _ in range(placement.devices)]
    for route in placement.routes:
        for stage, device in enumerate(route):
            held[device].add(stage)
    return tuple(tuple(sorted(stages)) for stages in held)


@lru_cache(maxsize=4096)
def held_by(route: Route, device: int) -> tuple[int, ...]:
    """Return the stages of a route that are on a device."""
    return tuple(stage for stage, home in enumerate(route) if home == device)


PLACEMENTS: tuple[str, ...] = tuple(_RULES)
"""The names of all placements."""
