"""The texts that stand for models of noise in commands: a name and numbers, with colons between them."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from io import StringIO

from ..base.errors import InputError, faults_in
from ..base.files import read_text
from .models import Bursts, Jitter, SlowDevice, Slowdown, SlowLink, Stall
from .order_graph import NoiseModel

FORMS = {
    "jitter": "jitter:VARIATION or jitter:FILE.csv",
    "slow-device": "slow-device:DEVICE:FACTOR",
    "slow-link": "slow-link:FROM:TO:FACTOR or slow-link:FROM:TO:+TICKS",
    "bursts": "bursts:FROM:TO:SHARE:LENGTH:FACTOR or bursts:FROM:TO:SHARE:LENGTH:+TICKS",
    "stall": "stall:DEVICE:TICKS or stall:any:TICKS",
}
"""How the text of each model is written."""

_COLUMNS = ("stage", "kind", "variation")
_KINDS = ("F", "B", "W")


def parse_noise(text: str) -> NoiseModel:
    """Return the model of noise that a text such as ``jitter:0.1`` or ``slow-device:3:1.2`` stands for.

    Raises
    ------
    InputError
        If no model has this name, if a number is missing, malformed or out of range, or if a file of measured
        numbers cannot be read; the message says what is wrong or shows the right form.
    """
    name, *numbers = text.split(":")
    if name not in FORMS:
        raise InputError(f"must be one of: {'; '.join(FORMS.values())}", key="noise", value=text)
    try:
        return _MAKERS[name](numbers)
    except InputError as error:
        if error.source:
            raise
        rule = f"{error.key} {error.rule}" if error.key else error.rule
        raise InputError(rule, key="noise", value=text) from None
    except (ValueError, IndexError):
        raise InputError(f"must be {FORMS[name]}", key="noise", value=text) from None


def parse_noises(texts: Sequence[str]) -> tuple[NoiseModel, ...]:
    """Return the models of noise that several texts stand for, in the same sequence.

    Raises
    ------
    InputError
        As in `parse_noise`. Also if more than one text is a stall, because a device can have only one stall
        per sample.
    """
    models = tuple(parse_noise(text) for text in texts)
    stalls = [str(model) for model in models if isinstance(model, Stall)]
    if len(stalls) > 1:
        raise InputError("must be the only stall", key="noise", value=stalls[1])
    return models


def _only(numbers: Sequence[str], count: int) -> Sequence[str]:
    if len(numbers) != count:
        raise IndexError
    return numbers


def _jitter(numbers: Sequence[str]) -> Jitter:
    (text,) = _only(numbers, 1)
    return load_spread(text) if text.endswith(".csv") else Jitter(float(text))


def _slow_device(numbers: Sequence[str]) -> SlowDevice:
    device, factor = _only(numbers, 2)
    return SlowDevice(int(device), float(factor))


def _slow_link(numbers: Sequence[str]) -> SlowLink:
    sender, receiver, slowdown = _only(numbers, 3)
    return SlowLink(int(sender), int(receiver), _slowdown(slowdown))


def _bursts(numbers: Sequence[str]) -> Bursts:
    sender, receiver, share, length, slowdown = _only(numbers, 5)
    return Bursts(int(sender), int(receiver), float(share), float(length), _slowdown(slowdown))


def _stall(numbers: Sequence[str]) -> Stall:
    device, ticks = _only(numbers, 2)
    return Stall(None if device == "any" else int(device), float(ticks))


def _slowdown(text: str) -> Slowdown:
    return Slowdown(ticks=float(text[1:])) if text.startswith("+") else Slowdown(float(text))


_MAKERS: dict[str, Callable[[Sequence[str]], NoiseModel]] = {
    "jitter": _jitter,
    "slow-device": _slow_device,
    "slow-link": _slow_link,
    "bursts": _bursts,
    "stall": _stall,
}


def load_spread(path: str) -> Jitter:
    """Return a `Jitter` with the coefficients of variation of a file, one for each stage and kind.

    The file is a CSV table with the columns ``stage``, ``kind`` (F, B or W) and ``variation``, the standard
    deviation of the measured times over their mean; each stage and kind has one line.

    Raises
    ------
    InputError
        If the file cannot be read, lacks a column or a line, has a line twice, or has a number out of range.
    """
    with faults_in(path):
        found = _read_spread(read_text(path))
        stages = 1 + max((stage for stage, _ in found), default=-1)
        lacking = [(s, k) for s in range(stages) for k in _KINDS if (s, k) not in found]
        if not found or lacking:
            stage, kind = (lacking or [(0, "F")])[0]
            raise InputError(f"has no line for stage {stage}, kind {kind}")
        return Jitter(tuple(tuple(found[s, k] for s in range(stages)) for k in _KINDS), path)


def _read_spread(text: str) -> dict[tuple[int, str], float]:
    lines = csv.DictReader(StringIO(text))
    if tuple(lines.fieldnames or ()) != _COLUMNS:
        raise InputError(f"the first line must be {','.join(_COLUMNS)}")
    found: dict[tuple[int, str], float] = {}
    for number, line in enumerate(lines, 2):
        key = f"line {number}"
        try:
            stage, kind, variation = int(line["stage"]), line["kind"], float(line["variation"])
        except (TypeError, ValueError):
            raise InputError("must be a stage, a kind and a number", key=key) from None
        if kind not in _KINDS or not 0 <= stage < 10**6:
            rule = "must have a stage from 0 on and one of the kinds F, B, W"
            raise InputError(rule, key=key, value=f"{stage},{kind}")
        if (stage, kind) in found:
            raise InputError("is the second line of this stage and kind", key=key, value=f"{stage},{kind}")
        found[stage, kind] = variation
    return found
