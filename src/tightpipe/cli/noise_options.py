"""The option ``--noise``, which several commands take."""

from __future__ import annotations

import click

from ..noise.grammar import FORMS

noise_option = click.option(
    "--noise",
    multiple=True,
    metavar="MODEL",
    help=f"A model of noise, several times for several: {'; '.join(FORMS.values())}.",
)
