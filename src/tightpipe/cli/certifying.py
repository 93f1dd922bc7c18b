"""The command ``check``, and what ``solve`` and ``bound`` need to write certificates."""

from __future__ import annotations

import sys

import click

from ..certificates import certify
from ..certificates.check_proof import main as check_files
from ..core.instance import Instance
from ..core.params.solve_params import SolveParams
from ..core.printable import printable
from ..core.result import Proof
from .common import cli

certificate_option = click.option(
    "--certificate",
    metavar="FILE",
    help="Also search for a proof of the bound, for as long as the time limit, and write it to FILE.",
)


def write_certificate(
    path: str,
    instance: Instance,
    bound: int,
    proof: Proof | None,
    time_limit: float,
    params: SolveParams,
) -> None:
    """Search for a proof of a bound, and write a certificate to a file.

    If no proof that can be checked is found, the certificate only names what the bound rests on, and a line
    on stderr says so.

    Parameters
    ----------
    path
        The file to write.
    instance
        The instance whose cost is bounded.
    bound
        The lower bound of the cost in ticks.
    proof
        What the bound rests on; None if that is not known.
    time_limit
        Seconds to search for a proof that can be checked.
    params
        The numbers that tune this search.
    """
    certificate = certify(instance, bound, proof=proof, time_limit=time_limit, params=params)
    certificate.save(path)
    if certificate.trusted:
        by = certificate.proof["by"]
        lacks = f"{printable(path)} has no proof that can be checked: the bound rests on {by}"
        print(f"tightpipe: {lacks}", file=sys.stderr)


@cli.command("check")
@click.argument("proof")
@click.argument("schedule", required=False)
@click.pass_context
def _check(context: click.Context, proof: str, schedule: str | None) -> None:
    """Check the certificate in the file PROOF, and the schedule in the file SCHEDULE against its bound.

    The checker is one file, `tightpipe/certificates/check_proof.py`, which runs without tightpipe as well.
    """
    context.exit(check_files([path for path in (proof, schedule) if path is not None]))
