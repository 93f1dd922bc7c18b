"""Linear expressions over a problem's variables, built without PuLP's slow operators."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pulp

Variable = Any  # a pulp.LpVariable: PuLP has no types


@dataclass(slots=True)
class Linear:
    """The expression ``constant + sum(coefficient * variable)``, to which terms are added in place.

    Parameters
    ----------
    constant
        The constant term.
    terms
        Pairs (variable, coefficient), at most one for each variable.
    """

    constant: int = 0
    terms: list[tuple[Variable, int]] = field(default_factory=list)

    def plus(self, variable: Variable, coefficient: int = 1) -> Linear:
        """Add a term to the expression, and return the expression."""
        self.terms.append((variable, coefficient))
        return self

    def at_least(self, problem: pulp.LpProblem, least: int) -> None:
        """Add the row ``expression >= least`` to a problem, unless the expression has no variables."""
        if self.terms:
            sense = pulp.LpConstraintGE
            expression = pulp.LpAffineExpression(self.terms)
            problem.addConstraint(pulp.LpConstraint(expression, sense, rhs=least - self.constant))
