"""Where the sends and receives of a program stand among its computations."""

from __future__ import annotations

from enum import StrEnum


class MessageOrder(StrEnum):
    """Three ways to place the same messages; the notes of `lower` say which of them can deadlock."""

    EARLY_RECEIVES = "early-receives"  #: a receive stands before the computation during which it is sent
    IN_ORDER = "in-order"  #: both ends stand where the operation that makes the message ends
    PUBLISHED = "published"  #: as in the zero-bubble runtimes; needs sends that return at once
