"""One operation of one microbatch at one stage, and its text form ``<kind><stage>.<microbatch>``."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import NamedTuple

from ..base.errors import InputError


class OpKind(IntEnum):
    """What an operation computes. The numbers index tables of costs; no file format contains them."""

    F = 0  #: forward
    B = 1  #: backward for the gradient of the input, which the previous stage waits for
    W = 2  #: backward for the gradient of the weights, which may run at any later time
    BW = 3  #: both gradients in one operation


SINGLE, FUSED, PAIRED = range(3)
"""How an operation runs with the next one: one by one, a B with its W, an F with a fused backward."""
_NAMES = tuple(kind.name for kind in OpKind)
_PATTERN = re.compile(r"(F|BW|B|W)(\d{1,9})\.(\d{1,9})", re.ASCII)


class Operation(NamedTuple):
    """One operation, e.g. ``B7.3``: kind B at stage 7 for microbatch 3."""

    kind: OpKind
    stage: int
    microbatch: int

    def __str__(self) -> str:
        return operation_text(*self)

    @classmethod
    def parse(cls, text: str) -> Operation:
        """Return the operation of a text such as ``B7.3``.

        Raises
        ------
        InputError
            If `text` is not ``<F|B|W|BW><stage>.<microbatch>``.
        """
        match = _PATTERN.fullmatch(text)
        if match is None:
            raise InputError("an operation is <F|B|W|BW><stage>.<microbatch>, e.g. B7.3", value=text)
        return cls(OpKind[match[1]], int(match[2]), int(match[3]))


def operation_text(kind: int, stage: int, microbatch: int) -> str:
    """Return the text form of the operation with these numbers, e.g. ``B7.3``."""
    return f"{_NAMES[kind]}{stage}.{microbatch}"
