"""The export targets by name: file formats of other programs, and the functions that write and read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..base.errors import InputError, about_file, check_choice
from ..base.files import read_text, write_text
from ..model.instance import Instance
from ..model.microbatches import sequence_at_the_end
from ..model.orders import without_absent
from ..model.schedule import Order, Schedule
from ..model.simulate import simulate
from ..model.validate import validate
from . import layouts, timelines
from . import runtime_orders as orders
from .model_split import ModelSplit


@dataclass(frozen=True, slots=True)
class Target:
    """A file format of another program, for schedules or for cuts of models."""

    name: str  #: as given to `export` and on the command line
    write: Callable[..., str]  #: returns the text of what `prepare` returns, or raises an InputError
    read: Callable[[str], Any]  #: returns the order or the cut that the text of a file describes
    options: tuple[str, ...] = ()  #: names of those that `prepare` and `write` take
    #: returns what is written of a schedule or a cut
    prepare: Callable[..., Any] = lambda content, **_: content
    #: returns the microbatches in the sequence in which the file numbers them and takes their data
    sequence: Callable[[Schedule], list[int]] = lambda schedule: list(range(schedule.instance.microbatches))

    def check_options(self, options: Mapping[str, object]) -> None:
        """Raise an InputError if `options` has an option that the target does not take."""
        for name, value in options.items():
            if name not in self.options:
                taken = ", ".join(self.options) or "none"
                rule = f"{self.name} has no such option; it takes {taken}"
                raise InputError(rule, key=name, value=value)


_TORCH = orders.write_torch, orders.read_torch, ("merge", "torch_stage0")
_MEGATRON = orders.write_megatron, orders.read_megatron, ()
_COLOSSALAI = orders.write_colossalai, orders.read_colossalai, ("validation",)
EXPORTS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("torch-csv", *_TORCH, orders.prepare_torch, sequence_at_the_end),
        Target("megatron-json", *_MEGATRON, orders.prepare_megatron, orders.sequence_of),
        Target("colossalai-json", *_COLOSSALAI, orders.prepare_colossalai, orders.sequence_of),
        Target("chrome-trace", timelines.write_trace, timelines.read_trace),
        Target("csv", timelines.write_csv, timelines.read_csv),
    )
}
"""The targets for schedules by name."""

SPLITS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("torchtitan", layouts.write_torchtitan, layouts.read_torchtitan),
        Target("megatron-layout", layouts.write_megatron, layouts.read_megatron, ("layout_only",)),
    )
}
"""The targets for cuts of models by name."""


def export(content: Schedule | ModelSplit, target: str, path: str | Path, **options: Any) -> None:
    """Write a schedule, which is validated before, or the cut of a model as a file of another program.

    Parameters
    ----------
    content
        Schedule to write, or parts, device and recomputation of each stage.
    target
        Name of the file format in `EXPORTS`, or in `SPLITS` for a cut.
    path
        File to write.
    options
        Options of the target, e.g. ``merge=True`` for ``torch-csv``.

    Raises
    ------
    DeadlockError
        If operations wait for each other in a circle; the message names them.
    InputError
        If the schedule is invalid, the other program cannot run the schedule or express the cut, the target
        or an option is unknown, or the file cannot be written.
    """
    write_text(path, export_text(content, target, **options))


def export_text(content: Schedule | ModelSplit, target: str, **options: Any) -> str:
    """Return the text that `export` writes; raise errors as `export` does."""
    if isinstance(content, ModelSplit):
        return _text(content, _find(target, SPLITS), options)
    chosen = _find(target, EXPORTS)
    chosen.check_options(options)
    content.instance.refuse_slices("another program")
    content.refuse_copies("another program")
    _check_valid(content)
    return _text(content, chosen, options)


def data_sequence(schedule: Schedule, target: str) -> list[int]:
    """Return the microbatches of a schedule in the sequence in which another program takes their data.

    An exported file has the microbatch at place k under the number k, and the other program runs it with the
    k-th microbatch of its data.

    Raise an InputError if the target is unknown, or the other program takes all microbatches in one sequence
    and the schedule has no such sequence.
    """
    return _find(target, EXPORTS).sequence(schedule)


def import_order(
    path: str | Path, target: str, instance: Instance | None = None, sequence: Sequence[int] | None = None
) -> Order:
    """Return the order of an exported file.

    Parameters
    ----------
    path
        File to read.
    target
        Name of the file format in `EXPORTS`.
    instance
        The instance that the order is for. Backwards that it does not have, such as the B of stage 0, for
        which PyTorch does nothing, are left out, and a BW is what its stage has of it. None keeps all.
    sequence
        Which microbatches the file has under the numbers 0, 1 and so on, as `data_sequence` returns them.
        None keeps the numbers of the file.

    Raises
    ------
    InputError
        If the target is unknown, the file is not of its format, or `sequence` does not have the numbers of
        the file's microbatches.
    """
    order: Order = _read(path, _find(target, EXPORTS))
    if sequence is not None:
        order = _with_numbers(order, sequence)
    return order if instance is None else without_absent(instance, order)


def read_split(path: str | Path, target: str) -> ModelSplit:
    """Return the cut of a model that an exported file describes.

    Raise an InputError if the target is unknown or the file is not of its format.
    """
    split: ModelSplit = _read(path, _find(target, SPLITS))
    return split


def _with_numbers(order: Order, sequence: Sequence[int]) -> Order:
    count = 1 + int(order.operations[:, 2].max(initial=-1))
    if sorted(sequence) != list(range(count)):
        rule = f"must have each of the microbatches 0..{count - 1} of the file once"
        raise InputError(rule, key="sequence", value=list(sequence))
    operations = order.operations.copy()
    operations[:, 2] = np.array(sequence, np.int64)[operations[:, 2]]
    return Order(operations, order.offsets, order.pairs)


def _find(name: str, targets: Mapping[str, Target]) -> Target:
    check_choice("target", name, *targets)
    return targets[name]


def _text(content: Any, target: Target, options: dict[str, Any]) -> str:
    target.check_options(options)
    prepared = target.prepare(content, **options)
    text = target.write(prepared, **options)
    if not _agree(prepared, target.read(text), options):
        raise AssertionError(f"{target.name} does not read back as it was written")
    return text


def _agree(written: Schedule | ModelSplit, read: Order | ModelSplit, options: dict[str, Any]) -> bool:
    """Return whether a file says what was written, as far as its format says it."""
    if isinstance(written, Schedule):
        return isinstance(read, Order) and without_absent(written.instance, read) == written.order
    assert isinstance(read, ModelSplit)
    if options.get("layout_only"):  # such a text does not say what is recomputed
        read = replace(read, recomputed=written.recomputed)
    if read.microbatches is None:  # nor do the arguments of Megatron-LM say microbatches or data parallelism
        read = replace(read, microbatches=written.microbatches, shards=written.shards)
    return read == written


def _read(path: str | Path, target: Target) -> Any:
    with about_file(path):
        return target.read(read_text(path))


def _check_valid(schedule: Schedule) -> None:
    """Raise an error unless the schedule is complete, free of deadlock and valid."""
    violations = validate(schedule.instance, schedule)
    incomplete = [v for v in violations if v.rule in ("complete", "placement")]
    if not incomplete:
        simulate(schedule.instance, schedule.order)  # its error for a deadlock says more than the violations
    for violation in incomplete or violations:
        raise InputError(f"not exported, the schedule is invalid: {violation}")
