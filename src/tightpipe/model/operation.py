"""One operation of one microbatch or slice at one stage, and its text form, e.g. ``B7.3`` or ``B7.3.0``."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import NamedTuple

from ..base.errors import InputError


class OpKind(IntEnum):
    """What an operation computes or copies. The numbers index tables; no file format contains them."""

    F = 0  #: forward
    B = 1  #: backward for the gradient of the input, which the previous stage waits for
    W = 2  #: backward for the gradient of the weights, which may run at any later time
    BW = 3  #: both gradients in one operation
    O = 4  # noqa: E741  #: copy of a part of the activation out of the device, between F and the backward
    L = 5  #: copy of that part back into the device, before the backward


COMPUTES = (OpKind.F, OpKind.B, OpKind.W, OpKind.BW)
"""The kinds that run on the compute engine of a device."""
COPIES = (OpKind.O, OpKind.L)
"""The kinds that run on the copy engines of a device; only instances with `offload` have them."""
SINGLE, FUSED, PAIRED = range(3)
"""How an operation runs with the next one: one by one, a B with its W, an F with a fused backward."""
_NAMES = tuple(kind.name for kind in OpKind)
_PATTERN = re.compile(r"(F|BW|B|W|O|L)(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?", re.ASCII)


class Operation(NamedTuple):
    """One operation, e.g. ``B7.3``: kind B at stage 7 for microbatch 3.

    Where every microbatch is cut into k slices, the third number is that of a *unit*: slice j of microbatch m
    is unit m * k + j. In texts an operation then has a third number, e.g. ``B7.3.0`` for slice 0.
    """

    kind: OpKind
    stage: int
    microbatch: int

    def __str__(self) -> str:
        return operation_text(*self)

    @classmethod
    def parse(cls, text: str, slices: int = 0) -> Operation:
        """Return the operation of a text such as ``B7.3``.

        Parameters
        ----------
        text
            The text.
        slices
            Number of slices of a microbatch; 0 where microbatches are whole.

        Raises
        ------
        InputError
            If `text` is not ``<F|B|W|BW|O|L><stage>.<microbatch>``, followed by ``.<slice>`` where there are
            slices.
        """
        match = _PATTERN.fullmatch(text)
        if match is None or (match[4] is None) != (slices == 0):
            form, example = (".<slice>", "B7.3.0") if slices else ("", "B7.3")
            raise InputError(
                f"an operation is <F|B|W|BW|O|L><stage>.<microbatch>{form}, e.g. {example}", value=text
            )
        kind, stage, microbatch = OpKind[match[1]], int(match[2]), int(match[3])
        if not slices:
            return cls(kind, stage, microbatch)
        if int(match[4]) >= slices:
            raise InputError(f"a microbatch has slices 0..{slices - 1}", value=text)
        return cls(kind, stage, microbatch * slices + int(match[4]))


def operation_text(kind: int, stage: int, microbatch: int, slices: int = 0) -> str:
    """Return the text form of the operation with these numbers, e.g. ``B7.3``; `slices` as in `parse`."""
    unit = f"{microbatch // slices}.{microbatch % slices}" if slices else microbatch
    return f"{_NAMES[kind]}{stage}.{unit}"
