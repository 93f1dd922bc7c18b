"""Parameters are read from files, and written as TOML with a comment for each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from textwrap import wrap

from ..errors import InputError
from ..instance_file import read_data
from .parameters import Value, documented, summary_of
from .solve_params import DEFAULTS, SolveParams, params_from_dict

_WIDTH = 100


def load_params(path: str | Path) -> SolveParams:
    """Return the parameters of a file; those that it does not name have their defaults.

    The suffix ``.toml`` means TOML, everything else JSON; ``-`` stands for standard input.

    Raises
    ------
    InputError
        If the file cannot be read, names an unknown parameter or has a value out of range.
    """
    try:
        return params_from_dict(read_data(path))
    except InputError as error:
        raise (error if error.source else error.at(str(path))) from None


def params_to_toml(params: SolveParams = DEFAULTS) -> str:
    """Return all parameters as a TOML file, each below a comment that says what it is and may be."""
    return "\n".join(_lines(params))


def _lines(params: SolveParams) -> Iterator[str]:
    for name, parameters in params.searches():
        texts = documented(type(parameters))
        yield from _comment(summary_of(type(parameters)))
        yield f"[{name}]"
        for each in fields(parameters):
            yield ""
            yield from _comment(f"{texts.get(each.name, '')} ({each.metadata['range']})".strip())
            yield f"{each.name} = {_text(getattr(parameters, each.name))}"
        yield ""


def _comment(text: str) -> list[str]:
    return wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# ")


def _text(value: Value) -> str:
    if not isinstance(value, tuple):
        return repr(value)
    return f"[{', '.join(map(_text, value))}]"
