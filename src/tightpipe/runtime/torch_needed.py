"""Checks for PyTorch, which is an optional extra, for enough GPUs, and for a version that runs pairs."""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec

from ..core.errors import InputError

DEVICES = ("cpu", "cuda")
"""The kinds of device on which the processes of a run or a profile can compute."""


def torch_installed() -> bool:
    """Return whether PyTorch can be imported; a folder that is only named torch does not count."""
    spec = find_spec("torch")
    return spec is not None and spec.origin is not None


def require_torch(purpose: str) -> None:
    """Raise an error unless PyTorch is installed.

    Raises
    ------
    InputError
        If PyTorch is missing; the message says that `purpose` needs PyTorch, and how to install it.
    """
    if not torch_installed():
        raise InputError(
            f"{purpose} needs PyTorch 2.8 or later, which is not installed: pip install 'tightpipe[torch]', "
            "or pip install torch==2.13.0 for the version that is tested"
        )


def check_device(device: str) -> None:
    """Raise an InputError unless `device` is ``cpu`` or ``cuda``."""
    if device not in DEVICES:
        raise InputError(f"must be one of {', '.join(DEVICES)}", key="device", value=device)


def require_gpus(devices: int) -> None:
    """Raise an error unless PyTorch finds a GPU for each device.

    Raises
    ------
    InputError
        If there are fewer GPUs than `devices`; the message says how many there are.
    """
    from .torch_machine import too_few_gpus  # only here, as PyTorch takes seconds

    problem = too_few_gpus("cuda", devices)
    if problem:
        raise InputError(problem)


def require_pairs() -> None:
    """Raise an error unless this version of PyTorch can run an F and a backward as a pair.

    Raises
    ------
    InputError
        If PyTorch is older than 2.9.
    """
    found = version("torch")
    if tuple(map(int, found.split(".")[:2])) < (2, 9):
        raise InputError("two operations that run as a pair need 2.9 or later", key="PyTorch", value=found)
