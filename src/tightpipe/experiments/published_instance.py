"""A setting of the papers becomes an instance with a memory limit, a placement and an objective of choice."""

from __future__ import annotations

from ..core.errors import InputError
from ..core.instance import Instance
from ..core.placement import PLACEMENTS
from ..settings import load_settings
from .sweep.axes import named_change, parse_memory, parse_objective

FITTING = tuple(name for name in PLACEMENTS if name != "wave")
"""The placements that a setting can have: not a wave, in which a device has four stages instead of two."""


def published_instance(
    name: str, *, memory: str = "2p", placement: str = "v", objective: str = "device_span"
) -> Instance:
    """Return a setting of the papers as an instance.

    Parameters
    ----------
    name
        The setting, e.g. ``1.5B-8x24``: a model of 1.5 billion parameters on 8 devices with 24 microbatches.
    memory
        The memory limit of each device, written as in an experiment file: ``2p`` (2 p forward activations of
        one stage, p being the number of devices), ``0.5x`` (half the setting's own limit), ``smallest`` (the
        smallest limit at which there is a schedule), ``none``, or a number in the setting's unit.
    placement
        One of `FITTING`. A device holds the same layers in each of them.
    objective
        ``device_span`` or ``makespan``.

    Raises
    ------
    InputError
        If a name or a value is unknown; the message says which are known.
    """
    known = load_settings()
    if name not in known:
        raise InputError(f"must be one of {', '.join(known)}", key="setting", value=name)
    if placement not in FITTING:
        raise InputError(f"must be one of {', '.join(FITTING)}", key="placement", value=placement)
    instance = known[name].instance(placement=placement)
    limit = named_change("memory", parse_memory, int(memory) if memory.isdecimal() else memory)
    return named_change("objective", parse_objective, objective).apply(limit.apply(instance))
