"""Close a gap by asking for one target after another: the decision version in place of minimising."""

from __future__ import annotations

from tightpipe.instance import Instance
from tightpipe.metrics import cost
from tightpipe.options import Options

from ..clock import Clock
from ..progress import Incumbent
from ..run import TOO_LARGE
from .decide import decide

_FURTHER = 1 / 16  # of the gap that a target is below a schedule just found
_HALF = 1 / 2


def ask_targets(
    instance: Instance, options: Options, incumbent: Incumbent, clock: Clock, effort: float
) -> str:
    """Ask whether targets between bound and incumbent can be kept; return why it ended early.

    Parameters
    ----------
    instance
        The problem.
    options
        Threads, seed, memory cap.
    incumbent
        What is known; a schedule that keeps a target replaces its schedule, a refuted target its bound.
    clock
        Ends the last question.
    effort
        Deterministic time of each question, as in `search`.

    Notes
    -----
    The first target is one tick below the incumbent: it is not harder to refute than a far one, and closes
    the gap. Where a target is kept, the next ones are further from the new incumbent; where it stays open,
    the lower half remains. When nothing is left to ask, all is asked again with twice the effort.
    """
    ceiling, share = cost(incumbent.schedule), 0.0
    asked = False
    while not incumbent.closed and clock.left > 0:
        ceiling = min(ceiling, cost(incumbent.schedule))
        if ceiling <= incumbent.bound:
            ceiling, share, effort = cost(incumbent.schedule), 0.0, 2 * effort
        target = ceiling - max(1, int(share * (ceiling - incumbent.bound)))
        decision = decide(instance, target, clock.limit(options), effort)
        if decision.schedule is not None:
            incumbent.offer(decision.schedule)
            share = max(_FURTHER, min(_HALF, 2 * share))
        elif decision.possible is False:
            incumbent.report(None, target + 1)
        elif decision.reason:
            # what is too large now was not before: time is nearly up
            return "" if asked and decision.reason == TOO_LARGE else decision.reason
        else:
            ceiling, share = target, _HALF
        asked = True
    return ""
