"""Dynamic programming over prefixes: what a few devices can have started, and how early they are free then.

The *prefix* of a schedule at some time says how many items of each queue have started until then, from which
tick each device is free, and from which tick each microbatch under way can go on. Where memory is scarce, few
microbatches are under way. Then there are few prefixes, and their number grows only in proportion to the
number of microbatches.
"""

from .beam import Beams, BeamSearch
from .few_devices import is_whole, start_windows
from .search import PrefixProofs, Questions, answer_to, search_prefixes

__all__ = [
    "BeamSearch",
    "Beams",
    "PrefixProofs",
    "Questions",
    "answer_to",
    "is_whole",
    "search_prefixes",
    "start_windows",
]
