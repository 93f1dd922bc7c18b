"""What can go wrong, as types: bad input, infeasible instances, deadlocked orders."""

from __future__ import annotations

from typing import Any

_UNSET: Any = object()


class InputError(ValueError):
    """Input that breaks a rule; the message names file, key, value and what would be right.

    Parameters
    ----------
    rule
        What would be right.
    key
        Dotted path of the offending entry, e.g. ``memory.limit[2]``.
    value
        The offending value.
    source
        The file (or other origin) that the value came from.
    """

    def __init__(self, rule: str, *, key: str = "", value: Any = _UNSET, source: str = "") -> None:
        self.rule, self.key, self.value, self.source = rule, key, value, source
        super().__init__(self._text())

    def _text(self) -> str:
        entry = self.key
        if self.value is not _UNSET:
            shown = repr(self.value)
            shown = shown if len(shown) <= 60 else f"{shown[:28]}...{shown[-28:]}"
            entry = f"{self.key} = {shown}" if self.key else shown
        return ": ".join(part for part in (self.source, entry, self.rule) if part).replace("\n", " ")

    def at(self, source: str) -> InputError:
        """Return the same error with the file that it came from."""
        return InputError(self.rule, key=self.key, value=self.value, source=source)


class HeuristicError(InputError):
    """A heuristic that is not tightpipe's own breaks its contract; the message names it and says how.

    Parameters
    ----------
    rule
        What is wrong with it.
    name
        The name that it goes by in results.
    """

    def __init__(self, rule: str, name: str) -> None:
        super().__init__(rule, key="heuristic", value=name)


class InfeasibleError(Exception):
    """The instance has no schedule at all; the message says why and what would be enough."""


class NoScheduleError(Exception):
    """A heuristic has no schedule for a feasible instance; the message says which limit it needs."""


class DeadlockError(Exception):
    """An order in which operations wait for each other in a circle; the message names them."""


class ContradictionError(Exception):
    """A bound above the cost of a valid schedule: a fault of tightpipe, or of a solver that it trusts."""


class StoppedError(Exception):
    """Work that could not go on, e.g. on a full disk; what was finished is kept."""


class RunError(RuntimeError):
    """A process of a run failed or did not end in time; the message has the end of its output."""
