"""Table 5 of the zero-bubble paper: its settings and its published bubble rates."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from ..core.instance import Instance
from .paper_settings import Setting


@dataclass(frozen=True, slots=True)
class Table5Row:
    """One row of the table: a model on a number of devices, with one stage on each.

    Parameters
    ----------
    setting
        Model, size and times.
    published
        Published bubble rate by the name of the column, e.g. ``ZB-2p``.

    References
    ----------
    Qi et al., "Zero Bubble Pipeline Parallelism", arXiv:2401.10241, Table 5.
    """

    setting: Setting
    published: Mapping[str, float]

    def instance(self, times_p: int | None = None) -> Instance:
        """Return the row as an instance in the placement `linear`.

        Parameters
        ----------
        times_p
            Memory limit in multiples of p forward activations, e.g. 1 for ZB-1p and 2 for ZB-2p; None for no
            limit.
        """
        setting = self.setting
        memory = setting.memory(m_offset=0)
        limit = None if times_p is None else times_p * setting.devices * setting.forward_memory
        return setting.with_times(placement="linear", memory=replace(memory, limit=limit))


@cache
def load_table5() -> tuple[Table5Row, ...]:
    """Return the twelve rows, in the sequence of the paper."""
    text = files(__package__).joinpath("zero_bubble_table5.toml").read_text(encoding="utf-8")
    return tuple(_row(**row) for row in tomllib.loads(text)["row"])


def _row(*, published: dict[str, float], **numbers: int | str) -> Table5Row:
    name = f"{numbers['model']}-{numbers['devices']}x{numbers['microbatches']}"
    setting = Setting(name=name, active=False, **numbers)  # type: ignore[arg-type]  # as in the data file
    return Table5Row(setting, MappingProxyType(published))
