"""How much memory and time a CP-SAT model takes until its search begins, estimated before it is built."""

from __future__ import annotations

from math import comb

from tightpipe.core.instance import Instance
from tightpipe.core.params.proof import CpsatParams
from tightpipe.core.params.solve_params import DEFAULTS

from ..memory_cap import MemoryCap
from ..outcome import TOO_LARGE, Ended
from ..windows import Windows

# The bytes are resident memory when the search begins, measured with 8 devices and 24 microbatches, and with
# 12 devices and 36 microbatches. Each thread then takes about as much again. The estimates leave this out,
# because the memory cap ends the search if it takes too much.
_BYTES_PER_ORDER = 4500  # for each order boolean of the lattice model
_BYTES_PER_PAIR = 1300  # for each pair of operations of one device in the plain model


def lattice_bytes(windows: Windows) -> int:
    """Return the estimated size of the lattice model of these windows, in bytes."""
    return _BYTES_PER_ORDER * windows.undecided


def lattice_refusal(
    windows: Windows, seconds: float, cap: MemoryCap, params: CpsatParams = DEFAULTS.cpsat
) -> Ended | None:
    """Return the end of a search whose lattice model exceeds the limits; None if it fits them.

    Parameters
    ----------
    windows
        Feasible windows; the orders that they leave open determine the size of the model.
    seconds
        The estimated time to build the model must be shorter than this.
    cap
        The cap on memory.
    params
        The most orders, and the time to build the model for each.
    """
    orders = windows.undecided
    if orders > params.most_orders or orders * params.seconds_per_order >= seconds:
        return TOO_LARGE
    return cap.refusal(lattice_bytes(windows))


def plain_bytes(instance: Instance) -> int:
    """Return the estimated size of the plain model of the instance, in bytes."""
    operations = 3 * instance.stages * instance.microbatches
    return _BYTES_PER_PAIR * instance.devices * comb(operations // instance.devices, 2)
