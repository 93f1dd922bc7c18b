"""The text of an imported file is read as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

from ..core.errors import InputError


def json_content(text: str) -> Any:
    """Return the content of a JSON text.

    Raises
    ------
    InputError
        If the text is not JSON, nested too deeply, or has an integer of too many digits.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"not JSON, or truncated: {error.msg} at line {error.lineno}") from None
    except RecursionError:
        raise InputError("is nested too deeply") from None
    except ValueError:  # Python refuses to convert integers of more digits
        raise InputError(f"holds an integer of more than {sys.get_int_max_str_digits()} digits") from None
