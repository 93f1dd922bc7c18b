"""What a CP-SAT model takes until its search begins, before it is built: memory and time."""

from __future__ import annotations

from math import comb

from tightpipe.core.instance import Instance

from ..memory import MemoryCap
from ..run import TOO_LARGE
from ..windows import Windows

# measured at 8 x 24 and 12 x 36: resident bytes when the search begins. Each thread then takes about as much
# again, which is left to the watch over it.
_BYTES_PER_ORDER = 4500  # one order boolean of the lattice
_SECONDS_PER_ORDER = 1e-4  # building one
_MOST_ORDERS = 300_000  # the largest that was searched to the end in ten minutes had 94,433 (6.2B-8x64)
_BYTES_PER_PAIR = 1300  # two operations of one device in the plain model


def lattice_bytes(windows: Windows) -> int:
    """Return the size of the lattice model of these windows."""
    return _BYTES_PER_ORDER * windows.undecided


def lattice_refusal(windows: Windows, seconds: float, cap: MemoryCap) -> str:
    """Return why the lattice model of these windows is not built: time or memory; empty where it pays.

    Parameters
    ----------
    windows
        Which decide the size.
    seconds
        In which it must be expected to be built.
    cap
        On the memory.
    """
    orders = windows.undecided
    if orders > _MOST_ORDERS or orders * _SECONDS_PER_ORDER >= seconds:
        return TOO_LARGE
    return cap.refusal(lattice_bytes(windows))


def plain_bytes(instance: Instance) -> int:
    """Return the size of the plain model."""
    operations = 3 * instance.stages * instance.microbatches
    return _BYTES_PER_PAIR * instance.devices * comb(operations // instance.devices, 2)
