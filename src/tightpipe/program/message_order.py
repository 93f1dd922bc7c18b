"""Where a program's sends and receives stand among its computations."""

from __future__ import annotations

from enum import StrEnum


class MessageOrder(StrEnum):
    """Three orders of the same messages; `lower` says what each guarantees."""

    EARLY_RECEIVES = "early-receives"  #: a receive before the computation during which its message is sent
    IN_ORDER = "in-order"  #: both ends where the operation that makes the message ends
    PUBLISHED = "published"  #: as the zero-bubble runtimes have it; needs sends that return at once
