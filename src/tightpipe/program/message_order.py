"""The ways to place the sends and receives of a program among its computations."""

from __future__ import annotations

from enum import StrEnum


class MessageOrder(StrEnum):
    """Three ways to place the same messages; the notes of `lower` say which of them can deadlock."""

    EARLY_RECEIVES = "early-receives"  #: receives stand before the computation during which the send happens
    IN_ORDER = "in-order"  #: send and receive stand at the time at which the sender's operation ends
    PUBLISHED = "published"  #: as in the zero-bubble runtimes; needs sends that return at once
