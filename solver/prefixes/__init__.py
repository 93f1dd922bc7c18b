"""Dynamic programming over prefixes: what a few devices can have started, and how early they are free then.

The *prefix* of a schedule at some time says how many operations of each queue have started until then. Where
memory is scarce, few microbatches are under way, so that there are few prefixes, and their number grows
with the number of microbatches only in proportion.
"""

from .answer import answer_to
from .beam import beam_search
from .few_devices import is_whole
from .questions import Question, Questions
from .search import PrefixSearch, search_prefixes

__all__ = [
    "PrefixSearch",
    "Question",
    "Questions",
    "answer_to",
    "beam_search",
    "is_whole",
    "search_prefixes",
]
