"""With ``--by-hand``, the command ``bound`` proves a bound in words and numbers."""

from __future__ import annotations

from ..core.errors import InfeasibleError
from ..core.instance import Instance
from ..explain.two_times_proof import prove_by_two_times
from ..solver.bounds.formulas import best_bound
from ..terminal.console import show_json


def show_proof_by_hand(path: str, instance: Instance, as_json: bool) -> None:
    """Print the proof of the bound "two times" for the instance that the file `path` holds.

    Raises
    ------
    InfeasibleError
        If the instance has no schedule.
    InputError
        If the bound does not apply to the instance.
    """
    if (reason := instance.infeasibility()) is not None:
        raise InfeasibleError(reason)
    proof = prove_by_two_times(instance)
    if as_json:
        show_json({"instance": path, **proof.to_dict()})
        return
    print(proof)
    other = best_bound(instance)
    if other.value > proof.times.cost:
        print(f"\nThe bound {other.name} is larger: cost >= {other.value}. Its argument: {other.argument}.")
