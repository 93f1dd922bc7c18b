"""PyTorch is an optional extra; say how to install it where it is missing."""

from __future__ import annotations

from importlib.util import find_spec

from ..core.errors import InputError


def torch_installed() -> bool:
    """Whether PyTorch can be imported; a mere folder of that name does not count."""
    spec = find_spec("torch")
    return spec is not None and spec.origin is not None


def require_torch(purpose: str) -> None:
    """Raise unless PyTorch is installed.

    Raises
    ------
    InputError
        Saying how to install it.
    """
    if not torch_installed():
        raise InputError(
            f"{purpose} needs PyTorch 2.8 or later, which is not installed: pip install 'tightpipe[torch]', "
            "or pip install torch==2.13.0 for the version that is tested"
        )
