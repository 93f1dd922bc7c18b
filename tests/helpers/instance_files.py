"""Files of instances: read, written and read again, and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tightpipe import InputError, Instance, load_instance
from tightpipe.model.instance_file import instance_from_dict, instance_to_dict


def loaded(folder: Path, text: str) -> Instance:
    """The instance of a TOML file with this text."""
    path = folder / "instance.toml"
    path.write_text(text)
    return load_instance(path)


def read_again(instance: Instance) -> Instance:
    """The instance as it is read from a file to which it was written."""
    return instance_from_dict(json.loads(json.dumps(instance_to_dict(instance))))


def refusal(data: dict[str, Any]) -> str:
    """The line that says why there is no instance of this content."""
    with pytest.raises(InputError) as caught:
        instance_from_dict(data)
    assert "\n" not in str(caught.value)
    return str(caught.value)
