"""The ways to place the sends and receives of a program among its computations."""

from __future__ import annotations

from enum import StrEnum


class MessageOrder(StrEnum):
    """Three ways to place the sends and receives of the same messages.

    Only `published` can deadlock, and only where sends wait for their receives. The proof is in the notes of
    `lower`.
    """

    EARLY_RECEIVES = "early-receives"  #: receives stand before the computation during which the send happens
    IN_ORDER = "in-order"  #: send and receive stand at the time at which the sender's operation ends
    PUBLISHED = "published"  #: as in the zero-bubble runtimes; safe only if sends return at once
